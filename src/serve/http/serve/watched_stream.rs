//! Watches the bytes of a connection.
//!
//! Each read records that a peer has begun to send, and each write whether the peer reads what is
//! sent to it. This layer is below TLS, because only there both are visible.

use super::connection_state::ConnectionState;
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

/// A connection that can be closed without sending the rest of its data.
pub(super) trait Abort {
    /// Discards unsent data on close.
    fn abort(&self);
}

impl Abort for TcpStream {
    fn abort(&self) {
        // Otherwise the kernel holds the data for minutes. If this fails, there is no other harm.
        let _held = self.set_zero_linger();
    }
}

impl Abort for UnixStream {
    fn abort(&self) {}
}

/// A stream that reports its reads and writes to the connection's [`ConnectionState`].
#[derive(Debug)]
pub(super) struct WatchedStream<S: Abort> {
    stream: S,
    state: Arc<ConnectionState>,
}

impl<S: Abort> WatchedStream<S> {
    pub(super) const fn new(stream: S, state: Arc<ConnectionState>) -> Self {
        Self { stream, state }
    }
}

impl<S: Abort> Drop for WatchedStream<S> {
    fn drop(&mut self) {
        if self.state.is_stalled() {
            self.stream.abort();
        }
    }
}

impl<S: AsyncRead + Abort + Unpin> AsyncRead for WatchedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.state.bytes_received();
        }
        read
    }
}

impl<S: AsyncWrite + Abort + Unpin> AsyncWrite for WatchedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.state.set_stalled(written.is_pending());
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.state.set_stalled(written.is_pending());
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
