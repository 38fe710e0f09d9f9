//! The Unix socket for orders from the service's own user.
//!
//! Owns the socket's file: it is created so that nobody else can open it, replaced if its process
//! died, never taken from a living process, and removed at the end. The kernel reports the user of
//! each connection, which a TCP address does not.

use rustix::{
    fs::{Mode, fchmod},
    process::geteuid,
};
use std::{
    fs, io,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::{
    net::{UnixListener, UnixSocket, UnixStream},
    time,
};

/// The maximum number of connections that wait to be accepted.
const BACKLOG: u32 = 64;

/// How long to wait for a sign that another process listens on the path.
const PATIENCE: Duration = Duration::from_secs(2);

/// The remedy if the socket cannot be created.
const REMEDY: &str =
    "choose another with --web.admin-socket, such as /run/recliner/admin.sock, or none";

/// Why the socket cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Another process listens on the path.
    #[error(
        "another process listens on {}: stop that one, or {REMEDY}", .0.display()
    )]
    Held(PathBuf),
    /// A file that is not a socket has the path.
    #[error("{} exists but is not a socket: move it away, or {REMEDY}", .0.display())]
    NoSocket(PathBuf),
    /// The system refused an operation.
    #[error("cannot listen on the Unix socket {}: {why}; {REMEDY}", .path.display())]
    Refused {
        /// The path of the socket.
        path: PathBuf,
        /// The system's error.
        why: io::Error,
    },
}

/// A listening socket; dropping it removes its file.
#[derive(Debug)]
pub struct AdminSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the file, because another process may have replaced it.
    file: (u64, u64),
    /// The user id of the owner.
    owner: u32,
}

impl AdminSocket {
    /// Creates the socket, for its owner only.
    ///
    /// # Errors
    /// If a process is already listening, another file has the name, or the system refuses.
    pub async fn open(path: &Path) -> Result<Self, SocketError> {
        let refused = |why| SocketError::Refused { path: path.to_owned(), why };
        remove_stale(path).await?;
        let socket = UnixSocket::new_stream().map_err(refused)?;
        // The file is created with these permissions: setting them later would follow the path
        // again.
        fchmod(&socket, Mode::RUSR | Mode::WUSR).map_err(|why| refused(why.into()))?;
        socket.bind(path).map_err(refused)?;
        let closed = fs::symlink_metadata(path)
            .and_then(|file| Ok(((file.dev(), file.ino()), socket.listen(BACKLOG)?)));
        match closed {
            Ok((file, listener)) => {
                let (path, owner) = (path.to_owned(), geteuid().as_raw());
                Ok(Self { listener, path, file, owner })
            }
            Err(why) => {
                // The file has no listener, so the next start can replace it.
                let _stale = fs::remove_file(path);
                Err(refused(why))
            }
        }
    }

    /// Waits for the next connection of the owner or of root, and returns it with its user id.
    ///
    /// # Errors
    /// If no connection can be accepted, for example because no file descriptor is free.
    pub(super) async fn accept(&self) -> io::Result<(UnixStream, u32)> {
        loop {
            let (stream, _) = self.listener.accept().await?;
            // A connection that was closed immediately no longer has a peer.
            let Ok(peer) = stream.peer_cred() else { continue };
            if peer.uid() == self.owner || peer.uid() == 0 {
                return Ok((stream, peer.uid()));
            }
            tracing::warn!(
                uid = peer.uid(),
                "refused another user's connection over the Unix socket"
            );
        }
    }
}

impl Drop for AdminSocket {
    fn drop(&mut self) {
        let own = fs::symlink_metadata(&self.path)
            .is_ok_and(|file| (file.dev(), file.ino()) == self.file);
        if own && let Err(why) = fs::remove_file(&self.path) {
            tracing::debug!(%why, "could not remove the file of the Unix socket");
        }
    }
}

/// Removes the file of a process that no longer exists.
async fn remove_stale(path: &Path) -> Result<(), SocketError> {
    let refused = |why| SocketError::Refused { path: path.to_owned(), why };
    match fs::symlink_metadata(path) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(why) => return Err(refused(why)),
        Ok(file) if !file.file_type().is_socket() => {
            return Err(SocketError::NoSocket(path.to_owned()));
        }
        Ok(_) => {}
    }
    match time::timeout(PATIENCE, UnixStream::connect(path)).await {
        Ok(Err(why)) if why.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(refused)
        }
        Ok(Err(why)) if why.kind() == io::ErrorKind::NotFound => Ok(()),
        // The queue is full, or the process is slow: either way, somebody listens.
        Ok(Ok(_)) | Err(_) => Err(SocketError::Held(path.to_owned())),
        Ok(Err(why)) if why.kind() == io::ErrorKind::WouldBlock => {
            Err(SocketError::Held(path.to_owned()))
        }
        Ok(Err(why)) => Err(refused(why)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o777
    }

    #[tokio::test]
    async fn socket_is_private_and_removed_on_drop() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("admin.sock");
        let socket = AdminSocket::open(&path).await.unwrap();
        assert_eq!((&socket.path, mode(&path)), (&path, 0o600));
        let (asks, accepted) = tokio::join!(UnixStream::connect(&path), socket.accept());
        let _asks = asks.unwrap();
        assert_eq!(accepted.unwrap().1, geteuid().as_raw());
        drop(socket);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn replaces_socket_of_dead_process_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("admin.sock");
        let live = AdminSocket::open(&path).await.unwrap();
        let error = AdminSocket::open(&path).await.unwrap_err().to_string();
        assert!(error.starts_with("another process listens on "), "{error}");
        assert!(UnixStream::connect(&path).await.is_ok(), "the first socket no longer listens");
        drop(live);

        // A killed process leaves a file that nobody listens on.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let next = AdminSocket::open(&path).await.unwrap();
        assert!(UnixStream::connect(&path).await.is_ok());

        // The socket of another process is not removed at the end.
        fs::remove_file(&path).unwrap();
        let other = std::os::unix::net::UnixListener::bind(&path).unwrap();
        drop(next);
        assert!(path.exists());
        drop(other);
    }

    #[tokio::test]
    async fn existing_file_that_is_not_a_socket_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("admin.sock");
        fs::write(&path, "kept").unwrap();
        let error = AdminSocket::open(&path).await.unwrap_err().to_string();
        assert!(error.contains("exists but is not a socket"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"kept");
        let nowhere = dir.path().join("no/admin.sock");
        let error = AdminSocket::open(&nowhere).await.unwrap_err().to_string();
        assert!(
            error.contains("no/admin.sock: ") && error.contains("--web.admin-socket"),
            "{error}"
        );
    }
}
