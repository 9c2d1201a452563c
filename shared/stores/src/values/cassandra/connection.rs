//! A connection to a node. Requests share it: each has a stream, and the answers come in any order.

use super::super::super::server_path::Failure;
use super::super::lines::CONNECT_WITHIN;
use super::address::ClusterAddress;
use super::failure::{UNPREPARED, judge, judge_io, malformed, no_login};
use super::frame::{Answer, Consistency, Execution, HEADER_BYTES, Header, Request, answer};
use rustls::pki_types::ServerName;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// Bytes that are read at a time, unless an answer is longer.
const READ_BYTES: usize = 64 << 10;
/// Requests that are written at once.
const WRITTEN_AT_ONCE: usize = 64;

/// A connection. Its clones are the same connection, which ends with the last of them.
#[derive(Clone)]
pub struct Connection(Arc<Shared>);

struct Shared {
    address: Arc<ClusterAddress>,
    requests: mpsc::UnboundedSender<Vec<u8>>,
    streams: Arc<Mutex<Streams>>,
    /// Identifiers of prepared statements.
    prepared: Mutex<HashMap<String, Arc<[u8]>>>,
    tasks: [AbortHandle; 2],
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

type Received = (Header, Vec<u8>);

/// The requests that wait for answers, by their streams.
#[derive(Default)]
struct Streams {
    waiting: HashMap<i16, oneshot::Sender<Received>>,
    free: Vec<i16>,
    /// Number of streams that have been used.
    used: i16,
    /// Why the connection has ended, and whether that may pass.
    ended: Option<(String, bool)>,
}

impl Streams {
    /// Returns a stream that no request has.
    fn take(&mut self) -> Option<i16> {
        self.free.pop().or_else(|| {
            self.used = self.used.checked_add(1)?;
            Some(self.used - 1)
        })
    }

    fn end(&mut self, failure: &Failure) {
        self.ended.get_or_insert((failure.what.clone(), failure.may_pass));
        // Whoever waits learns of it.
        self.waiting.clear();
    }

    fn failure(&self) -> Failure {
        let (what, may_pass) = self.ended.clone().unwrap_or_else(|| ("the connection has ended".to_owned(), true));
        Failure { may_pass, is_lost: true, ..Failure::passing(what) }
    }
}

fn locked(streams: &Mutex<Streams>) -> MutexGuard<'_, Streams> {
    streams.lock().expect("no panic while the streams are locked")
}

impl Connection {
    /// Connects to a node and logs in.
    pub async fn make(address: &Arc<ClusterAddress>, host: &str, tls: Option<&TlsConnector>) -> Result<Self, Failure> {
        let made = timeout(CONNECT_WITHIN, Self::make_in_time(address, host, tls)).await;
        made.unwrap_or_else(|_| Err(Failure::slow(CONNECT_WITHIN)))
    }

    async fn make_in_time(
        address: &Arc<ClusterAddress>,
        host: &str,
        tls: Option<&TlsConnector>,
    ) -> Result<Self, Failure> {
        let is_tls = tls.is_some();
        let lost = |error: io::Error| judge_io(&error, is_tls);
        let unreachable = |error: io::Error| Failure {
            is_lost: true,
            ..Failure::passing(format!("{host}:{} cannot be reached: {error}", address.port))
        };
        let stream = TcpStream::connect((host, address.port)).await.map_err(unreachable)?;
        stream.set_nodelay(true).map_err(lost)?;
        let connection = match tls {
            None => Self::over(address, stream, is_tls),
            Some(connector) => {
                let name = ServerName::try_from(host.to_owned());
                let name = name.map_err(|error| Failure::lasting(format!("{host} is no name of a server: {error}")))?;
                Self::over(address, connector.connect(name, stream).await.map_err(lost)?, is_tls)
            }
        };
        let ready = connection.send(Request::startup(), |answer| Some(matches!(answer, Answer::Ready))).await?;
        if !ready {
            let (user, password) = address.login().map_err(Failure::lasting)?.ok_or_else(|| no_login(address))?;
            connection.send(Request::login(&user, &password), |answer| (answer == Answer::Ready).then_some(())).await?;
        }
        Ok(connection)
    }

    fn over(address: &Arc<ClusterAddress>, stream: impl AsyncRead + AsyncWrite + Send + 'static, is_tls: bool) -> Self {
        let (reader, writer) = tokio::io::split(stream);
        let (requests, to_write) = mpsc::unbounded_channel();
        let streams = Arc::new(Mutex::new(Streams::default()));
        let end =
            |streams: Arc<Mutex<Streams>>| move |error: io::Error| locked(&streams).end(&judge_io(&error, is_tls));
        let (read_end, write_end) = (end(streams.clone()), end(streams.clone()));
        let reading = read(reader, streams.clone());
        let reading = tokio::spawn(async move { reading.await.unwrap_or_else(read_end) });
        let writing = tokio::spawn(async move { write(writer, to_write).await.unwrap_or_else(write_end) });
        let tasks = [reading.abort_handle(), writing.abort_handle()];
        let (address, prepared) = (address.clone(), Mutex::default());
        Self(Arc::new(Shared { address, requests, streams, prepared, tasks }))
    }

    /// Executes a statement that is not prepared.
    pub async fn query<T>(
        &self,
        statement: &str,
        consistency: Consistency,
        take: impl FnOnce(Answer<'_>) -> Option<T>,
    ) -> Result<T, Failure> {
        self.send(Request::query(statement, consistency), take).await
    }

    /// Executes a statement, and prepares it first if this connection has not done so.
    pub async fn execute<T>(
        &self,
        statement: &str,
        execution: &Execution<'_>,
        take: impl FnOnce(Answer<'_>) -> Option<T>,
    ) -> Result<T, Failure> {
        let id = self.prepared(statement).await?;
        let received = self.exchange(Request::execute(&id, execution)).await?;
        let answer = read_answer(&received)?;
        if matches!(answer, Answer::Error(UNPREPARED, _)) {
            // Forgotten, since a table has changed or the server prepares more statements than it can keep. The next
            // attempt prepares the statement again.
            self.0.prepared.lock().expect("no panic while the statements are locked").remove(statement);
        }
        self.taken(answer, take)
    }

    async fn prepared(&self, statement: &str) -> Result<Arc<[u8]>, Failure> {
        let held = self.0.prepared.lock().expect("no panic while the statements are locked").get(statement).cloned();
        if let Some(id) = held {
            return Ok(id);
        }
        let id_of = |answer: Answer<'_>| match answer {
            Answer::Prepared(id) => Some(Arc::<[u8]>::from(id)),
            _ => None,
        };
        let id = self.send(Request::prepare(statement), id_of).await?;
        let mut prepared = self.0.prepared.lock().expect("no panic while the statements are locked");
        Ok(prepared.entry(statement.to_owned()).or_insert(id).clone())
    }

    async fn send<T>(&self, request: Request, take: impl FnOnce(Answer<'_>) -> Option<T>) -> Result<T, Failure> {
        let received = self.exchange(request).await?;
        self.taken(read_answer(&received)?, take)
    }

    fn taken<T>(&self, answer: Answer<'_>, take: impl FnOnce(Answer<'_>) -> Option<T>) -> Result<T, Failure> {
        match answer {
            Answer::Error(code, said) => Err(judge(code, said, &self.0.address)),
            answer => take(answer).ok_or_else(malformed),
        }
    }

    /// Sends a request, and waits for its answer.
    async fn exchange(&self, request: Request) -> Result<Received, Failure> {
        let (sender, receiver) = oneshot::channel();
        {
            let mut streams = locked(&self.0.streams);
            if streams.ended.is_some() {
                return Err(streams.failure());
            }
            let all_used = || Failure::passing("too many requests wait on one connection".to_owned());
            let stream = streams.take().ok_or_else(all_used)?;
            streams.waiting.insert(stream, sender);
            // The end of a connection is told to all that wait.
            let _ = self.0.requests.send(request.on(stream));
        }
        receiver.await.map_err(|_| locked(&self.0.streams).failure())
    }
}

fn read_answer(received: &Received) -> Result<Answer<'_>, Failure> {
    answer(&received.0, &received.1).ok_or_else(malformed)
}

/// Reads answers until the connection ends, and gives each to the request that waits for it.
async fn read(reader: impl AsyncRead + Unpin, streams: Arc<Mutex<Streams>>) -> io::Result<()> {
    let mut reader = BufReader::with_capacity(READ_BYTES, reader);
    loop {
        let mut header = [0; HEADER_BYTES];
        reader.read_exact(&mut header).await?;
        let foreign = || io::Error::new(io::ErrorKind::InvalidData, "the server does not speak the CQL protocol");
        let header = Header::parse(&header).ok_or_else(foreign)?;
        let mut body = vec![0; header.body_bytes];
        reader.read_exact(&mut body).await?;
        let mut streams = locked(&streams);
        // Events have streams below zero, and nobody waits for them.
        if let Some(waiting) = streams.waiting.remove(&header.stream) {
            streams.free.push(header.stream);
            // Whoever waited may have given up.
            let _ = waiting.send((header, body));
        }
    }
}

/// Writes requests until the connection ends.
async fn write(mut writer: impl AsyncWrite + Unpin, mut requests: mpsc::UnboundedReceiver<Vec<u8>>) -> io::Result<()> {
    let mut some = Vec::with_capacity(WRITTEN_AT_ONCE);
    while requests.recv_many(&mut some, WRITTEN_AT_ONCE).await > 0 {
        if let [one] = &some[..] {
            writer.write_all(one).await?;
        } else {
            writer.write_all(&some.concat()).await?;
        }
        writer.flush().await?;
        some.clear();
    }
    Ok(())
}

#[cfg(test)]
mod tests;
