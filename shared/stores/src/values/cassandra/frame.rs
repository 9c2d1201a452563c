//! Frames of the CQL binary protocol, version 4 (`native_protocol_v4.spec`): requests to bytes, bytes to answers.
//!
//! Only what loading and pushing need is here. Answers come from a peer: a malformed one is `None`.

/// Bytes of a frame's header.
pub const HEADER_BYTES: usize = 9;
/// Longest body that is accepted; the protocol's limit.
pub const BODY_BYTES_MAX: usize = 256 << 20;

const VERSION: u8 = 4;
const ANSWER: u8 = 0x80;
/// Depth of a type within types that is read.
const TYPE_DEPTH_MAX: u32 = 8;

/// How many replicas have to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Consistency {
    /// A majority of those in the local datacentre.
    LocalQuorum = 0x0006,
    /// One in the local datacentre.
    LocalOne = 0x000a,
}

/// What a statement is executed with.
#[derive(Clone, Copy, Debug)]
pub struct Execution<'e> {
    /// The statement's values, serialised; `None` for null.
    pub values: &'e [Option<&'e [u8]>],
    /// How many replicas have to answer.
    pub consistency: Consistency,
    /// Time of a write in microseconds.
    pub timestamp_us: Option<i64>,
    /// Which of the rows that are found the answer has; `None` for all.
    pub page: Option<Page<'e>>,
}

impl<'e> Execution<'e> {
    /// Returns the execution of a statement that finds rows, all of them in one answer.
    pub fn reading(values: &'e [Option<&'e [u8]>], consistency: Consistency) -> Self {
        Self { values, consistency, timestamp_us: None, page: None }
    }
}

/// Neighbouring rows of those that a statement finds.
#[derive(Clone, Copy, Debug)]
pub struct Page<'e> {
    /// Most rows.
    pub rows: i32,
    /// Where the page before it ended, as its answer says; `None` for the first page.
    pub after: Option<&'e [u8]>,
}

/// A request, whose stream is not set yet.
pub struct Request(Vec<u8>);

impl Request {
    fn new(opcode: u8) -> Self {
        Self(vec![VERSION, 0, 0, 0, opcode, 0, 0, 0, 0])
    }

    /// Begins a connection.
    pub fn startup() -> Self {
        let mut request = Self::new(0x01);
        request.short(1);
        request.string("CQL_VERSION");
        request.string("3.0.0");
        request
    }

    /// Answers a server that wants a password.
    pub fn login(user: &str, password: &str) -> Self {
        let mut request = Self::new(0x0f);
        request.bytes(Some(&[b"\0", user.as_bytes(), b"\0", password.as_bytes()].concat()));
        request
    }

    /// Executes a statement that is not prepared and has no values.
    pub fn query(statement: &str, consistency: Consistency) -> Self {
        let mut request = Self::new(0x07);
        request.long_string(statement);
        request.short(consistency as u16);
        request.0.push(0);
        request
    }

    /// Prepares a statement.
    pub fn prepare(statement: &str) -> Self {
        let mut request = Self::new(0x09);
        request.long_string(statement);
        request
    }

    /// Executes the prepared statement with this identifier.
    pub fn execute(id: &[u8], execution: &Execution<'_>) -> Self {
        const VALUES: u8 = 0x01;
        const NO_METADATA: u8 = 0x02;
        const PAGE_ROWS: u8 = 0x04;
        const PAGE_AFTER: u8 = 0x08;
        const TIMESTAMP: u8 = 0x20;
        let mut request = Self::new(0x0a);
        request.short(id.len() as u16);
        request.0.extend_from_slice(id);
        request.short(execution.consistency as u16);
        let after = execution.page.and_then(|page| page.after);
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let pages = flag(execution.page.is_some(), PAGE_ROWS) | flag(after.is_some(), PAGE_AFTER);
        request.0.push(VALUES | NO_METADATA | pages | flag(execution.timestamp_us.is_some(), TIMESTAMP));
        request.short(execution.values.len() as u16);
        execution.values.iter().for_each(|value| request.bytes(*value));
        if let Some(page) = execution.page {
            request.0.extend_from_slice(&page.rows.to_be_bytes());
        }
        after.into_iter().for_each(|after| request.bytes(Some(after)));
        if let Some(time) = execution.timestamp_us {
            request.0.extend_from_slice(&time.to_be_bytes());
        }
        request
    }

    /// Returns the frame on a stream.
    pub fn on(mut self, stream: i16) -> Vec<u8> {
        let length = (self.0.len() - HEADER_BYTES) as u32;
        self.0[2..4].copy_from_slice(&stream.to_be_bytes());
        self.0[5..9].copy_from_slice(&length.to_be_bytes());
        self.0
    }

    fn short(&mut self, number: u16) {
        self.0.extend_from_slice(&number.to_be_bytes());
    }

    fn string(&mut self, text: &str) {
        self.short(text.len() as u16);
        self.0.extend_from_slice(text.as_bytes());
    }

    fn long_string(&mut self, text: &str) {
        self.bytes(Some(text.as_bytes()));
    }

    fn bytes(&mut self, bytes: Option<&[u8]>) {
        self.0.extend_from_slice(&bytes.map_or(-1, |bytes| bytes.len() as i32).to_be_bytes());
        self.0.extend_from_slice(bytes.unwrap_or_default());
    }
}

/// The header of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    flags: u8,
    /// The request's stream.
    pub stream: i16,
    opcode: u8,
    /// Bytes of the body.
    pub body_bytes: usize,
}

impl Header {
    /// Reads a header.
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let [version, flags, s0, s1, opcode, length @ ..] = *bytes;
        let body_bytes = u32::from_be_bytes(length) as usize;
        // A server that does not speak this version answers in one of its own, with an error in the same form.
        let is_answer = version & ANSWER != 0 && (3..=5).contains(&(version & !ANSWER));
        (is_answer && body_bytes <= BODY_BYTES_MAX).then(|| Self {
            flags,
            stream: i16::from_be_bytes([s0, s1]),
            opcode,
            body_bytes,
        })
    }
}

/// The cells of rows; `None` for null.
pub type Rows<'b> = Vec<Vec<Option<&'b [u8]>>>;

/// What a server answers.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer<'b> {
    /// The connection may be used.
    Ready,
    /// A password is needed.
    Authenticate,
    /// A statement is prepared under this identifier.
    Prepared(&'b [u8]),
    /// Rows: the cells of each; `None` for null.
    Rows(Rows<'b>),
    /// Rows of a page, and where it ends: more rows follow.
    Page(Rows<'b>, &'b [u8]),
    /// Something is done.
    Done,
    /// An error.
    Error(i32, &'b str),
}

/// Reads an answer.
pub fn answer<'b>(header: &Header, body: &'b [u8]) -> Option<Answer<'b>> {
    let mut body = Reader(body);
    body.skip_notes(header.flags)?;
    Some(match header.opcode {
        0x00 => Answer::Error(body.int()?, body.string()?),
        0x02 | 0x10 => Answer::Ready,
        0x03 => Answer::Authenticate,
        0x08 => match body.int()? {
            2 => match body.rows()? {
                (rows, None) => Answer::Rows(rows),
                (rows, Some(end)) => Answer::Page(rows, end),
            },
            4 => {
                let length = body.short()?;
                Answer::Prepared(body.take(length.into())?)
            }
            1 | 3 | 5 => Answer::Done,
            _ => return None,
        },
        _ => return None,
    })
}

/// The rest of a body.
struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    fn take(&mut self, bytes: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    fn short(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(self.take(2)?.try_into().ok()?))
    }

    fn int(&mut self) -> Option<i32> {
        Some(i32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    fn string(&mut self) -> Option<&'b str> {
        let length = self.short()?;
        std::str::from_utf8(self.take(length.into())?).ok()
    }

    /// Reads bytes, or null.
    fn bytes(&mut self) -> Option<Option<&'b [u8]>> {
        match self.int()? {
            length if length < 0 => Some(None),
            length => self.take(length as usize).map(Some),
        }
    }

    /// Skips what stands in front of an answer: identifier of a trace, warnings, payload of the server's own.
    fn skip_notes(&mut self, flags: u8) -> Option<()> {
        const TRACING: u8 = 0x02;
        const PAYLOAD: u8 = 0x04;
        const WARNINGS: u8 = 0x08;
        if flags & TRACING != 0 {
            self.take(16)?;
        }
        if flags & WARNINGS != 0 {
            for _ in 0..self.short()? {
                self.string()?;
            }
        }
        if flags & PAYLOAD != 0 {
            for _ in 0..self.short()? {
                self.string()?;
                self.bytes()?;
            }
        }
        Some(())
    }

    /// Reads rows and, if more follow, where their page ends.
    fn rows(&mut self) -> Option<(Rows<'b>, Option<&'b [u8]>)> {
        const GLOBAL_TABLE: i32 = 0x01;
        const MORE_PAGES: i32 = 0x02;
        const NO_METADATA: i32 = 0x04;
        let flags = self.int()?;
        let columns = usize::try_from(self.int()?).ok()?;
        let end = if flags & MORE_PAGES != 0 { Some(self.bytes()??) } else { None };
        if flags & NO_METADATA == 0 {
            if flags & GLOBAL_TABLE != 0 {
                self.string()?;
                self.string()?;
            }
            for _ in 0..columns {
                if flags & GLOBAL_TABLE == 0 {
                    self.string()?;
                    self.string()?;
                }
                self.string()?;
                self.skip_type(0)?;
            }
        }
        let rows = usize::try_from(self.int()?).ok()?;
        // Each cell has four bytes or more.
        if columns == 0 || rows.checked_mul(columns)? > self.0.len() / 4 {
            return (rows == 0).then(|| (Vec::new(), end));
        }
        let rows = (0..rows).map(|_| (0..columns).map(|_| self.bytes()).collect()).collect::<Option<_>>()?;
        Some((rows, end))
    }

    fn skip_type(&mut self, depth: u32) -> Option<()> {
        if depth > TYPE_DEPTH_MAX {
            return None;
        }
        match self.short()? {
            0x00 => self.string().map(drop),
            0x20 | 0x22 => self.skip_type(depth + 1),
            0x21 => {
                self.skip_type(depth + 1)?;
                self.skip_type(depth + 1)
            }
            0x30 => {
                self.string()?;
                self.string()?;
                for _ in 0..self.short()? {
                    self.string()?;
                    self.skip_type(depth + 1)?;
                }
                Some(())
            }
            0x31 => {
                for _ in 0..self.short()? {
                    self.skip_type(depth + 1)?;
                }
                Some(())
            }
            _ => Some(()),
        }
    }
}

/// Returns the texts in a cell of type `set<text>` or `list<text>`.
pub fn texts(cell: &[u8]) -> Option<Vec<&str>> {
    let mut cell = Reader(cell);
    let count = usize::try_from(cell.int()?).ok().filter(|count| *count <= cell.0.len() / 4)?;
    (0..count).map(|_| std::str::from_utf8(cell.bytes()??).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(opcode: u8, flags: u8, body: &[u8]) -> Header {
        Header { flags, stream: 7, opcode, body_bytes: body.len() }
    }

    #[test]
    fn requests_are_as_the_specification_has_them() {
        let frame = Request::query("SELECT 1", Consistency::LocalOne).on(0x0102);
        assert_eq!(frame, b"\x04\0\x01\x02\x07\0\0\0\x0f\0\0\0\x08SELECT 1\0\x0a\0");
        let (values, consistency) = ([Some(&b"ab"[..]), None], Consistency::LocalQuorum);
        let execution = Execution { timestamp_us: Some(5), ..Execution::reading(&values, consistency) };
        let frame = Request::execute(b"id", &execution).on(3);
        let body = b"\0\x02id\0\x06\x23\0\x02\0\0\0\x02ab\xff\xff\xff\xff\0\0\0\0\0\0\0\x05";
        assert_eq!(frame, [&b"\x04\0\0\x03\x0a\0\0\0\x1b"[..], body].concat());
        let page = Some(Page { rows: 7, after: Some(b"state") });
        let frame = Request::execute(b"id", &Execution { values: &[], timestamp_us: None, page, ..execution }).on(3);
        assert_eq!(&frame[9..], b"\0\x02id\0\x06\x0f\0\0\0\0\0\x07\0\0\0\x05state");
        let frame = Request::login("me", "word").on(0);
        assert_eq!(&frame[9..], b"\0\0\0\x08\0me\0word");
    }

    #[test]
    fn rows_come_with_and_without_metadata_and_warnings() {
        let cells = b"\0\0\0\x02\0\0\0\x01a\xff\xff\xff\xff\0\0\0\0\0\0\0\x02bc";
        let bare = [&b"\0\0\0\x02\0\0\0\x04\0\0\0\x02"[..], cells].concat();
        let rows = Answer::Rows(vec![vec![Some(b"a"), None], vec![Some(b""), Some(b"bc")]]);
        assert_eq!(answer(&header(8, 0, &bare), &bare), Some(rows));
        // With global table, columns of the types text and set<map<uuid, tuple<int>>>, and a warning in front.
        let head = b"\0\x01\0\x01w\0\0\0\x02\0\0\0\x01\0\0\0\x02\0\x01k\0\x01t";
        let columns = b"\0\x01x\0\x0d\0\x01y\0\x22\0\x21\0\x0c\0\x31\0\x01\0\x09";
        let named = [&head[..], columns, cells].concat();
        let rows = Answer::Rows(vec![vec![Some(b"a"), None], vec![Some(b""), Some(b"bc")]]);
        assert_eq!(answer(&header(8, 8, &named), &named), Some(rows));
    }

    #[test]
    fn a_page_says_where_it_ends() {
        let body = b"\0\0\0\x02\0\0\0\x06\0\0\0\x01\0\0\0\x03end\0\0\0\x01\0\0\0\x01a";
        assert_eq!(answer(&header(8, 0, body), body), Some(Answer::Page(vec![vec![Some(b"a")]], b"end")));
        let without = b"\0\0\0\x02\0\0\0\x06\0\0\0\x01\xff\xff\xff\xff\0\0\0\x01\0\0\0\x01a";
        assert_eq!(answer(&header(8, 0, without), without), None);
    }

    #[test]
    fn every_cut_and_every_claim_of_length_is_malformed_and_nothing_worse() {
        let whole = b"\0\0\0\x02\0\0\0\x01\0\0\0\x01\0\x01k\0\x01t\0\x01x\0\x22\0\x0d\0\0\0\x01\0\0\0\x03abc";
        assert!(answer(&header(8, 0, whole), whole).is_some());
        for length in 0..whole.len() {
            assert_eq!(answer(&header(8, 0, &whole[..length]), &whole[..length]), None, "{length} bytes");
        }
        for place in 0..whole.len() {
            for value in [0, 0x7f, 0x80, 0xff] {
                let mut changed = whole.to_vec();
                changed[place] = value;
                for flags in [0, 2, 4, 8, 0xff] {
                    for opcode in [0, 3, 8, 0x10] {
                        let _ = answer(&header(opcode, flags, &changed), &changed);
                    }
                }
            }
        }
        let deep = [&b"\0\0\0\x02\0\0\0\x01\0\0\0\x01\0\0\0\0\0\0"[..], &[0, 0x22].repeat(1000)].concat();
        assert_eq!(answer(&header(8, 0, &deep), &deep), None);
        let many = b"\0\0\0\x02\0\0\0\x04\x7f\xff\xff\xff\x7f\xff\xff\xff";
        assert_eq!(answer(&header(8, 0, many), many), None);
    }

    #[test]
    fn headers_of_another_protocol_are_refused() {
        assert_eq!(Header::parse(b"\x84\0\0\x07\x08\0\0\0\x04"), Some(header(8, 0, &[0; 4])));
        assert_eq!(Header::parse(b"HTTP/1.1 "), None);
        assert_eq!(Header::parse(b"\x84\0\0\x07\x08\xff\0\0\x04"), None);
    }

    #[test]
    fn sets_of_texts_are_read() {
        assert_eq!(texts(b"\0\0\0\x02\0\0\0\x01a\0\0\0\x02bc"), Some(vec!["a", "bc"]));
        assert_eq!(texts(b"\x7f\0\0\x02\0\0\0\x01a"), None);
        assert_eq!(texts(b"\0\0\0\x01\xff\xff\xff\xff"), None);
    }
}
