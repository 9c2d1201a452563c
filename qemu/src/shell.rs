//! Commands in a guest, through a shell on each virtio-serial port, so that they work while the network is cut.

use anyhow::{Context, Result, bail};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Number of shells in a guest, which is the number of commands that can run at the same time.
pub const SHELLS: usize = 6;

/// Most bytes of output of one command.
const OUTPUT_BYTES_MAX: usize = 16 << 20;

/// Result of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShellOutput {
    /// Exit status.
    pub status: i32,
    /// Standard output and standard error.
    pub text: String,
}

/// One shell.
pub struct Shell {
    stream: UnixStream,
    received: Vec<u8>,
    number: u64,
}

impl Shell {
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self { stream, received: Vec::new(), number: 0 }
    }

    /// Sends a command, which runs with an empty standard input.
    pub fn start(&mut self, command: &str) -> Result<()> {
        self.number += 1;
        self.received.clear();
        let quoted = command.replace('\'', r"'\''");
        let end = format!("echo; echo \"@@end {} $status\"", self.number);
        let line = format!("sh -c '{quoted}' < /dev/null 2>&1; status=$?; {end}\n");
        self.stream.set_write_timeout(Some(Duration::from_secs(10)))?;
        self.stream.write_all(line.as_bytes()).context("the guest's shell takes no command")
    }

    /// Returns the command's output so far.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.received).into_owned()
    }

    /// Waits until `found` is true for the command's output. Returns false if the command ended before.
    pub fn wait_for(&mut self, until: Instant, found: impl Fn(&str) -> bool) -> Result<bool> {
        loop {
            if found(&self.text()) {
                return Ok(true);
            }
            if self.ended().is_some() {
                return Ok(false);
            }
            self.receive(until)?;
        }
    }

    /// Waits for the command's end.
    pub fn finish(&mut self, until: Instant) -> Result<ShellOutput> {
        loop {
            if let Some(output) = self.ended() {
                return Ok(output);
            }
            self.receive(until)?;
        }
    }

    /// Waits for the command's end, and writes its output to `out` as it comes.
    pub fn follow(&mut self, until: Instant, out: &mut impl Write) -> Result<ShellOutput> {
        let mut shown = 0;
        loop {
            let ended = self.ended();
            let text = ended.as_ref().map_or_else(|| self.text(), |output| output.text.clone());
            // The last newline may belong to the line that marks the end.
            let end = if ended.is_some() { text.len() } else { text.rfind('\n').unwrap_or(0) };
            if end > shown {
                out.write_all(&text.as_bytes()[shown..end])?;
                out.flush()?;
                shown = end;
            }
            match ended {
                Some(output) => return Ok(output),
                None => self.receive(until)?,
            }
        }
    }

    fn ended(&self) -> Option<ShellOutput> {
        ending(&self.text(), self.number)
    }

    fn receive(&mut self, until: Instant) -> Result<()> {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            bail!("no end of the command in time; it printed:\n{}", tail(&self.text(), 40));
        }
        self.stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        let mut buffer = [0; 16384];
        match self.stream.read(&mut buffer) {
            Ok(0) => bail!("the guest is gone; its command had printed:\n{}", tail(&self.text(), 40)),
            Ok(bytes) => self.received.extend_from_slice(&buffer[..bytes]),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error).context("the guest's shell cannot be read"),
        }
        if self.received.len() > OUTPUT_BYTES_MAX {
            bail!("a command in the guest printed more than {OUTPUT_BYTES_MAX} bytes");
        }
        Ok(())
    }
}

/// Returns the output before the line that marks the end of the command with this number.
fn ending(text: &str, number: u64) -> Option<ShellOutput> {
    let mark = format!("\n@@end {number} ");
    let (output, rest) = text.split_once(&mark)?;
    let (status, _) = rest.split_once('\n')?;
    Some(ShellOutput { status: status.trim().parse().ok()?, text: output.to_string() })
}

/// Returns the last lines of a text.
pub fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    /// Starts a shell of this machine in place of a guest's.
    fn shell() -> (Shell, Child) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let end = || Stdio::from(std::os::fd::OwnedFd::from(theirs.try_clone().unwrap()));
        let child = Command::new("sh").stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        (Shell::new(ours), child)
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(30)
    }

    #[test]
    fn output_and_status_come_back() {
        let (mut shell, mut child) = shell();
        for (command, status, text) in [
            ("echo 'a b'; echo c >&2", 0, "a b\nc\n"),
            ("printf x; exit 7", 7, "x"),
            ("if", 2, ""),
            ("cat; echo \"it's $((1 + 2))\"", 0, "it's 3\n"),
            ("false", 1, ""),
        ] {
            shell.start(command).unwrap();
            let output = shell.finish(soon()).unwrap();
            assert_eq!(output.status, status, "{command}: {output:?}");
            assert!(command == "if" || output.text == text, "{command}: {output:?}");
        }
        drop(shell);
        child.wait().unwrap();
    }

    #[test]
    fn a_command_that_does_not_end_is_given_up() {
        let (mut shell, mut child) = shell();
        shell.start("echo started; sleep 100").unwrap();
        assert!(shell.wait_for(soon(), |text| text.contains("started")).unwrap());
        let error = shell.finish(Instant::now() + Duration::from_millis(50)).unwrap_err().to_string();
        assert!(error.contains("in time") && error.contains("started"), "{error}");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn output_is_shown_as_it_comes() {
        let (mut shell, mut child) = shell();
        for (command, text) in
            [("printf 'a\\nb'", "a\nb"), ("echo; echo x; sleep 0.1; echo; echo y", "\nx\n\ny\n"), ("true", "")]
        {
            shell.start(command).unwrap();
            let mut shown = Vec::new();
            let output = shell.follow(soon(), &mut shown).unwrap();
            assert_eq!((String::from_utf8(shown).unwrap().as_str(), &*output.text), (text, text), "{command}");
        }
        drop(shell);
        child.wait().unwrap();
    }

    #[test]
    fn the_end_of_another_command_is_ignored() {
        assert_eq!(ending("x\n@@end 1 0\n", 2), None);
        assert_eq!(ending("x\n@@end 2 0", 2), None);
        assert_eq!(ending("x\n\n@@end 2 3\n", 2), Some(ShellOutput { status: 3, text: "x\n".into() }));
    }
}
