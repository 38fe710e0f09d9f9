//! The bytes of a connection, watched.
//!
//! Owns nothing but the look at each read and write: whether a peer has begun to send, and
//! whether it takes what is sent to it. It stands below TLS, where that is seen.

use super::life::Life;
use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, UnixStream},
};

/// What can be closed without a thought for what was not taken yet.
pub(super) trait Abort {
    /// Forgets what waits to be sent, when it is closed.
    fn abort(&self);
}

impl Abort for TcpStream {
    fn abort(&self) {
        // The system would go on holding it for minutes; where it must, that is all.
        let _held = self.set_zero_linger();
    }
}

impl Abort for UnixStream {
    fn abort(&self) {}
}

/// A stream whose reads and writes are told to the connection's [`Life`].
#[derive(Debug)]
pub(super) struct Wire<S: Abort> {
    stream: S,
    life: Arc<Life>,
}

impl<S: Abort> Wire<S> {
    pub(super) const fn new(stream: S, life: Arc<Life>) -> Self {
        Self { stream, life }
    }
}

impl<S: Abort> Drop for Wire<S> {
    fn drop(&mut self) {
        if self.life.is_stalled() {
            self.stream.abort();
        }
    }
}

impl<S: AsyncRead + Abort + Unpin> AsyncRead for Wire<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.life.read();
        }
        read
    }
}

impl<S: AsyncWrite + Abort + Unpin> AsyncWrite for Wire<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.life.stalls(written.is_pending());
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.life.stalls(written.is_pending());
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
