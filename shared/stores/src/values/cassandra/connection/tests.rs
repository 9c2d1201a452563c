//! Connections to servers that answer in another order, forget statements, break off, or speak another protocol.

use super::*;
use futures_util::future::join_all;
use tokio::net::TcpListener;

/// A request as a server reads it: opcode, stream and body.
type Seen = (u8, [u8; 2], Vec<u8>);

const STARTUP: u8 = 0x01;
const QUERY: u8 = 0x07;
const PREPARE: u8 = 0x09;
const EXECUTE: u8 = 0x0a;

/// Runs a client against a server that answers the requests so far, and after each answer waits for the next one.
fn with_server<T>(
    mut answers: impl FnMut(&mut Vec<Seen>) -> Vec<u8> + Send + 'static,
    client: impl AsyncFnOnce(Arc<ClusterAddress>) -> T,
) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut seen = Vec::new();
            let mut header = [0; HEADER_BYTES];
            while stream.read_exact(&mut header).await.is_ok() {
                let length = u32::from_be_bytes(header[5..].try_into().unwrap());
                let mut body = vec![0; length as usize];
                stream.read_exact(&mut body).await.unwrap();
                seen.push((header[4], [header[2], header[3]], body));
                let answer = answers(&mut seen);
                if answer == CLOSE {
                    return;
                }
                stream.write_all(&answer).await.unwrap();
            }
        });
        let address = ClusterAddress::parse(&format!("cql://127.0.0.1:{port}/k/a")).unwrap();
        let outcome = client(Arc::new(address)).await;
        server.abort();
        outcome
    })
}

/// Stands for the end of a connection.
const CLOSE: &[u8] = b"close";

fn frame(stream: [u8; 2], opcode: u8, body: &[u8]) -> Vec<u8> {
    let header = [&[0x84, 0, stream[0], stream[1], opcode], &(body.len() as u32).to_be_bytes()[..]].concat();
    [&header, body].concat()
}

/// Returns rows with one cell.
fn one_cell(stream: [u8; 2], cell: &[u8]) -> Vec<u8> {
    let head = b"\0\0\0\x02\0\0\0\x04\0\0\0\x01\0\0\0\x01";
    frame(stream, 0x08, &[&head[..], &(cell.len() as u32).to_be_bytes(), cell].concat())
}

fn cell(answer: Answer<'_>) -> Option<Vec<u8>> {
    match answer {
        Answer::Rows(rows) => Some(rows.first()?.first()?.as_ref()?.to_vec()),
        _ => None,
    }
}

#[test]
fn answers_reach_their_requests_in_any_order() {
    let answers = |seen: &mut Vec<Seen>| match seen.last().unwrap() {
        (STARTUP, stream, _) => {
            let ready = frame(*stream, 0x02, &[]);
            seen.clear();
            ready
        }
        // An answer that nobody waits for, such as an event, and those to all three from the last to the first.
        _ if seen.len() == 3 => {
            let event = frame([0xff, 0xff], 0x0c, b"event");
            let echo = |(_, stream, body): Seen| one_cell(stream, &body[4..body.len() - 3]);
            [vec![event], seen.drain(..).rev().map(echo).collect()].concat().concat()
        }
        _ => Vec::new(),
    };
    let found = with_server(answers, async |address| {
        let connection = Connection::make(&address, "127.0.0.1", None).await.unwrap();
        let ask = |statement| connection.query(statement, Consistency::LocalOne, cell);
        join_all(["a", "b", "c"].map(ask)).await
    });
    let found: Vec<Vec<u8>> = found.into_iter().map(Result::unwrap).collect();
    assert_eq!(found, [b"a", b"b", b"c"]);
}

#[test]
fn a_statement_that_the_server_has_forgotten_is_prepared_again_by_the_next_attempt() {
    let answers = |seen: &mut Vec<Seen>| {
        let executions = seen.iter().filter(|(opcode, ..)| *opcode == EXECUTE).count();
        let (opcode, stream, _) = *seen.last().unwrap();
        match opcode {
            STARTUP => frame(stream, 0x02, &[]),
            PREPARE => frame(stream, 0x08, b"\0\0\0\x04\0\x02id"),
            // Prepared again in between.
            EXECUTE if executions == 3 && seen.iter().filter(|(opcode, ..)| *opcode == PREPARE).count() != 2 => {
                CLOSE.to_vec()
            }
            EXECUTE if executions == 2 => frame(stream, 0x00, b"\0\0\x25\0\0\x04gone"),
            EXECUTE => one_cell(stream, &[executions as u8]),
            _ => CLOSE.to_vec(),
        }
    };
    let found = with_server(answers, async |address| {
        let connection = Connection::make(&address, "127.0.0.1", None).await.unwrap();
        let execution = Execution::reading(&[], Consistency::LocalOne);
        let execute = async || connection.execute("SELECT", &execution, cell).await;
        assert_eq!(execute().await.unwrap(), [1]);
        let failure = execute().await.unwrap_err();
        assert!(failure.may_pass && !failure.is_lost, "{failure}");
        execute().await.unwrap()
    });
    assert_eq!(found, [3]);
}

#[test]
fn whoever_waits_learns_that_a_connection_has_ended() {
    let answers = |seen: &mut Vec<Seen>| match *seen.last().unwrap() {
        (STARTUP, stream, _) => frame(stream, 0x02, &[]),
        (QUERY, ..) if seen.len() < 3 => Vec::new(),
        _ => CLOSE.to_vec(),
    };
    with_server(answers, async |address| {
        let connection = Connection::make(&address, "127.0.0.1", None).await.unwrap();
        let ask = |statement| connection.query(statement, Consistency::LocalOne, cell);
        for outcome in join_all(["a", "b"].map(ask)).await {
            let failure = outcome.unwrap_err();
            assert!(failure.may_pass && failure.is_lost, "{failure}");
        }
        let failure = connection.query("c", Consistency::LocalOne, cell).await.unwrap_err();
        assert!(failure.may_pass && failure.is_lost, "{failure}");
    });
}

#[test]
fn a_server_of_another_protocol_is_named() {
    let failure = with_server(
        |_| b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
        async |address| Connection::make(&address, "127.0.0.1", None).await.map(drop).unwrap_err(),
    );
    assert!(failure.is_lost && failure.to_string().contains("does not speak the CQL protocol"), "{failure}");
}
