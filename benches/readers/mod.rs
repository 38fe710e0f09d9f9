//! Readers of `/_db_updates` over sockets: most read everything, some never read a byte, and one
//! parses each row.

use super::measured::Failure;
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
    time,
};

/// The number of readers that read everything, and of those that read nothing.
pub(crate) const READERS: u64 = 900;
pub(crate) const STALLED: u64 = 100;

/// All readers, which run until this value is dropped.
#[derive(Debug)]
pub(crate) struct Readers {
    take: JoinSet<Result<(), Failure>>,
    _stalled: Vec<TcpStream>,
    taken: Arc<Taken>,
}

/// The amounts that all readers have received.
#[derive(Debug, Default)]
struct Taken {
    bytes: AtomicU64,
    /// Rows received by the reader that parses them.
    rows: AtomicU64,
}

impl Readers {
    pub(crate) async fn connect(to: SocketAddr) -> Result<Self, Failure> {
        let (mut take, taken) = (JoinSet::new(), Arc::<Taken>::default());
        take.spawn(look(connect(to).await?, Arc::clone(&taken)));
        for _ in 1..READERS {
            take.spawn(take_all(connect(to).await?, Arc::clone(&taken)));
        }
        let mut stalled = Vec::new();
        for _ in 0..STALLED {
            stalled.push(connect(to).await?);
        }
        Ok(Self { take, _stalled: stalled, taken })
    }

    /// Bytes that all readers have received so far, and rows that the parsing reader has.
    pub(crate) fn taken(&self) -> (f64, f64) {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64;
        (of(&self.taken.bytes), of(&self.taken.rows))
    }

    /// Waits for this time; fails if a reader ends.
    pub(crate) async fn still(&mut self, span: Duration) -> Result<(), Failure> {
        match time::timeout(span, self.take.join_next()).await {
            Err(_) => Ok(()),
            Ok(Some(Ok(Err(why)))) => Err(why),
            Ok(_) => Err("a reader ended".into()),
        }
    }
}

async fn connect(address: SocketAddr) -> Result<TcpStream, Failure> {
    let mut stream = TcpStream::connect(address).await?;
    let head = format!(
        "GET /_db_updates?feed=continuous&heartbeat=10000 HTTP/1.1\r\nHost: {address}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    Ok(stream)
}

async fn take_all(mut stream: TcpStream, taken: Arc<Taken>) -> Result<(), Failure> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        taken.bytes.fetch_add(count as u64, Ordering::Relaxed);
    }
}

/// Reads every row and checks that sequence numbers increase.
async fn look(mut stream: TcpStream, taken: Arc<Taken>) -> Result<(), Failure> {
    let (mut buffer, mut text, mut last) = (vec![0; 64 << 10], Vec::new(), 0_u64);
    loop {
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        taken.bytes.fetch_add(count as u64, Ordering::Relaxed);
        text.extend_from_slice(buffer.get(..count).unwrap_or_default());
        while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = text.drain(..=end).collect();
            // Other lines are heartbeats and chunk sizes.
            let line = String::from_utf8_lossy(&line);
            let Some((_, seq)) = line.split_once("\"seq\":\"") else { continue };
            let number: u64 = seq.split('-').next().unwrap_or_default().parse()?;
            if number <= last {
                return Err(format!("{number} came behind {last}").into());
            }
            last = number;
            taken.rows.fetch_add(1, Ordering::Relaxed);
        }
    }
}
