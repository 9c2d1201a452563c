//! QEMU's monitor.

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection to the monitor of a running QEMU.
pub struct Qmp {
    lines: BufReader<UnixStream>,
}

impl Qmp {
    /// Exchanges greetings with QEMU.
    pub(crate) fn new(stream: UnixStream) -> Result<Self> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut qmp = Self { lines: BufReader::new(stream) };
        qmp.line().context("QEMU's monitor does not greet")?;
        qmp.execute("qmp_capabilities", json!({}))?;
        Ok(qmp)
    }

    /// Runs a command and returns its answer. Drops events in between.
    pub fn execute(&mut self, command: &str, arguments: Value) -> Result<Value> {
        let line = format!("{}\n", json!({ "execute": command, "arguments": arguments }));
        self.lines.get_mut().write_all(line.as_bytes()).with_context(|| format!("QEMU takes no {command}"))?;
        loop {
            let mut answer = self.line().with_context(|| format!("QEMU does not answer {command}"))?;
            if let Some(error) = answer.get("error") {
                bail!("QEMU refuses {command}: {error}");
            }
            if let Some(value) = answer.get_mut("return") {
                return Ok(value.take());
            }
        }
    }

    fn line(&mut self) -> Result<Value> {
        let mut line = String::new();
        if self.lines.read_line(&mut line)? == 0 {
            bail!("QEMU is gone");
        }
        serde_json::from_str(&line).with_context(|| format!("not QMP: {line:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_from_events_and_errors() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let lines = [
            r#"{"QMP": {}}"#,
            r#"{"return": {}}"#,
            r#"{"event": "STOP"}"#,
            r#"{"return": {"running": true}}"#,
            r#"{"error": {"desc": "no such device"}}"#,
        ];
        theirs.write_all((lines.join("\n") + "\n").as_bytes()).unwrap();
        let mut qmp = Qmp::new(ours).unwrap();
        assert_eq!(qmp.execute("query-status", json!({})).unwrap()["running"], true);
        let error = qmp.execute("set_link", json!({ "name": "x", "up": false })).unwrap_err().to_string();
        assert!(error.contains("set_link") && error.contains("no such device"), "{error}");
        drop(theirs);
        assert!(qmp.execute("quit", json!({})).is_err());
    }
}
