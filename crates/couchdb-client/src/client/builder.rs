//! How a client is set up.

use super::{Client, ClientTask, Shared};
use crate::{
    Address, ClientSettings, Login, Observer, Transport, TransportError, auth::Auth,
    directory::Directory, observer::NoObserver, sender::Sender,
};
use std::{
    borrow::Cow,
    sync::{Arc, atomic::AtomicBool},
};
use tokio::{runtime::Handle, sync::OnceCell};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

/// Sets up a [`Client`].
#[derive(Debug)]
pub struct Builder {
    settings: ClientSettings,
    transport: Option<Transport>,
    user_agent: Cow<'static, str>,
    observer: Arc<dyn Observer>,
}

/// The `User-Agent` of requests, if the builder is given none.
const USER_AGENT: &str = concat!("couchdb-client/", env!("CARGO_PKG_VERSION"));

impl Client {
    /// A client of the cluster behind this URL, with the default settings. Its background task,
    /// which proves the login, runs on the current tokio runtime until the last clone of the
    /// client is dropped.
    ///
    /// # Errors
    /// When no tokio runtime runs, or TLS or the HTTP library refuses its settings.
    pub fn open(url: Address, login: Login) -> Result<Self, OpenError> {
        Self::builder(ClientSettings { login, ..ClientSettings::new(vec![url]) }).open()
    }

    /// Begins to set up a client with these settings.
    pub fn builder(settings: ClientSettings) -> Builder {
        Builder {
            settings,
            transport: None,
            user_agent: USER_AGENT.into(),
            observer: Arc::new(NoObserver),
        }
    }
}

impl Builder {
    /// Sends requests over this transport; the default is the network, as the settings say.
    #[must_use]
    pub fn transport(self, transport: Transport) -> Self {
        Self { transport: Some(transport), ..self }
    }

    /// Sends this as the `User-Agent`. A transport set with [`Self::transport`] has its own.
    #[must_use]
    pub fn user_agent(self, user_agent: impl Into<Cow<'static, str>>) -> Self {
        Self { user_agent: user_agent.into(), ..self }
    }

    /// Reports every request that has ended to this observer.
    #[must_use]
    pub fn observer(self, observer: Arc<dyn Observer>) -> Self {
        Self { observer, ..self }
    }

    /// The client, with its background task on the current tokio runtime: the task ends when the
    /// last clone of the client is dropped.
    ///
    /// # Errors
    /// When no tokio runtime runs, or TLS or the HTTP library refuses its settings.
    pub fn open(self) -> Result<Client, OpenError> {
        let runtime = Handle::try_current().map_err(|_| OpenError::NoRuntime)?;
        let (client, task) = self.build()?;
        let task = runtime.spawn(task.run(CancellationToken::new()));
        Ok(Client { shared: client.shared, task: Some(Arc::new(AbortOnDropHandle::new(task))) })
    }

    /// The client, and its background task for the caller to run. Nothing is sent before the task
    /// runs. Without a URL nothing is sent at all: every request ends with
    /// [`Error::Stopped`](crate::Error::Stopped).
    ///
    /// # Errors
    /// When TLS or the HTTP library refuses its settings.
    pub fn build(self) -> Result<(Client, ClientTask), TransportError> {
        let Self { settings, transport, user_agent, observer } = self;
        let transport = match transport {
            Some(transport) => transport,
            None => Transport::http(&settings, &user_agent)?,
        };
        let directory = Arc::new(Directory::new(&settings));
        let sender = Sender { transport, observer, timeout: settings.timeout };
        let login = settings.login.clone();
        let (auth, auth_task) = Auth::new(login, Arc::clone(&directory), sender.clone());
        let entries_named = OnceCell::new();
        let no_user_logged = AtomicBool::new(false);
        let shared = Shared { settings, directory, auth, sender, entries_named, no_user_logged };
        let client = Client { shared: Arc::new(shared), task: None };
        Ok((client.clone(), ClientTask { auth_task, client }))
    }
}

/// Why a client cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// TLS or the HTTP library refuses its settings.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// There is no tokio runtime to run the client's task.
    #[error("a client can be opened only within a tokio runtime")]
    NoRuntime,
}
