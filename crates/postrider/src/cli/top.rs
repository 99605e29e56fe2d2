//! `top`: the status screen, live, in a terminal. Draws with escape codes; changes nothing on the server.

use std::collections::VecDeque;
use std::io::{IsTerminal as _, Read as _};
use std::time::Duration;

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::sync::mpsc;

use super::prelude::*;
use super::status;

const EVERY: Duration = Duration::from_secs(1);
/// Lanes that are asked for.
const LANES: usize = 200;
/// Seconds that the curves show.
const SECONDS: usize = 60;
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_REST: &str = "\x1b[J";
const BOLD: &str = "\x1b[1m";
const PLAIN: &str = "\x1b[0m";

#[derive(Debug, Args)]
pub(super) struct TopArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// A terminal that gets its screen and its modes back at the end.
struct TerminalScreen {
    before: Termios,
}

impl TerminalScreen {
    fn open() -> Result<Self, CliError> {
        let is_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
        if !is_terminal {
            let text = "top needs a terminal; use `postrider status`".to_owned();
            return Err(CliError::Usage(text));
        }
        let before = tcgetattr(std::io::stdin()).map_err(std::io::Error::from)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(std::io::stdin(), OptionalActions::Now, &raw).map_err(std::io::Error::from)?;
        let screen = Self { before };
        output::write(ENTER)?;
        Ok(screen)
    }

    /// Columns and rows.
    fn size(&self) -> (usize, usize) {
        match tcgetwinsize(std::io::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
                (size.ws_col.into(), size.ws_row.into())
            }
            _ => (80, 24),
        }
    }
}

impl Drop for TerminalScreen {
    fn drop(&mut self) {
        let _ = output::write(LEAVE);
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.before);
    }
}

/// What a key means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TopKey {
    Quit,
    Down,
    Up,
    Hold,
}

/// The keys in what the terminal sent: q, Ctrl-C, j, k, the arrows and the space bar.
fn keys(bytes: &[u8]) -> Vec<TopKey> {
    let (mut keys, mut rest) = (Vec::new(), bytes);
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        keys.extend(match first {
            b'q' | b'Q' | 3 => Some(TopKey::Quit),
            b'j' => Some(TopKey::Down),
            b'k' => Some(TopKey::Up),
            b' ' => Some(TopKey::Hold),
            0x1b => match behind {
                [b'[', b'B', after @ ..] => {
                    rest = after;
                    Some(TopKey::Down)
                }
                [b'[', b'A', after @ ..] => {
                    rest = after;
                    Some(TopKey::Up)
                }
                _ => None,
            },
            _ => None,
        });
    }
    keys
}

/// Reads keys beside everything else. The thread ends with the process.
fn read_keys() -> mpsc::UnboundedReceiver<TopKey> {
    let (sender, receiver) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        let mut bytes = [0; 64];
        while let Ok(read @ 1..) = std::io::stdin().read(&mut bytes) {
            for key in keys(&bytes[..read]) {
                if sender.send(key).is_err() {
                    return;
                }
            }
        }
    });
    receiver
}

/// What was seen.
#[derive(Default)]
struct TopView {
    status: Value,
    problems: Value,
    sent: VecDeque<f64>,
    depth: VecDeque<f64>,
    /// Why the last look failed.
    trouble: Option<String>,
    /// Lanes above the first one that is shown.
    above: usize,
    held: bool,
}

pub(super) async fn run(args: TopArgs) -> CliResult {
    let ServerSession { client, .. } = args.connection.session()?;
    let mut view = TopView::default();
    // Before the screen is changed, so that a wrong key or server is said as usual.
    view.look(&client).await?;
    let screen = TerminalScreen::open()?;
    let mut keys = read_keys();
    let mut every = tokio::time::interval(EVERY);
    let mut resized =
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::window_change())?;
    loop {
        draw(&view, screen.size())?;
        tokio::select! {
            _ = every.tick() => {
                if !view.held {
                    view.trouble = view.look(&client).await.err().map(|error| error.to_string());
                }
            }
            _ = resized.recv() => {}
            key = keys.recv() => match key {
                None | Some(TopKey::Quit) => return Ok(()),
                Some(TopKey::Down) => {
                    let lanes = items(&view.status, "lanes").len();
                    view.above = (view.above + 1).min(lanes.saturating_sub(1));
                }
                Some(TopKey::Up) => view.above = view.above.saturating_sub(1),
                Some(TopKey::Hold) => view.held = !view.held,
            },
        }
    }
}

fn draw(view: &TopView, (columns, rows): (usize, usize)) -> CliResult {
    let mut text = HOME.to_owned();
    let lines = view.lines(columns);
    for (nth, line) in lines.iter().take(rows).enumerate() {
        // What others wrote must not steer the terminal.
        let line: String = output::harmless(line).chars().take(columns).collect();
        let is_heading = nth == 0 || line.starts_with("PROBLEM");
        let (begin, end) = if is_heading { (BOLD, PLAIN) } else { ("", "") };
        let next = if nth + 1 == rows.min(lines.len()) { "" } else { "\r\n" };
        text += &format!("{begin}{line}{end}{CLEAR_LINE}{next}");
    }
    text += CLEAR_REST;
    output::write(&text)
}

impl TopView {
    async fn look(&mut self, client: &Client) -> Result<(), CliError> {
        self.status = status::fetch(client, LANES).await?;
        self.problems = client.get("/v1/problems").await?;
        let stats = &self.status["stats"];
        let sent = stats["rates"]["sent_per_s"].as_f64().unwrap_or_default();
        let depth = stats["depth"].as_f64().unwrap_or_default();
        for (values, value) in [(&mut self.sent, sent), (&mut self.depth, depth)] {
            values.push_back(value);
            if values.len() > SECONDS {
                values.pop_front();
            }
        }
        Ok(())
    }

    fn lines(&self, columns: usize) -> Vec<String> {
        let state = match (&self.trouble, self.held) {
            (Some(why), _) => format!("NO ANSWER: {why}"),
            (None, true) => "held".to_owned(),
            (None, false) => "live".to_owned(),
        };
        let mut lines = vec![format!("Postrider top · {state} · q quit, space hold, j k lanes")];
        for problem in items(&self.problems, "problems") {
            let what = cell(problem, "/what");
            lines.push(format!("PROBLEM {} {what}", cell(problem, "/severity")));
        }
        let width = columns.saturating_sub(30).min(SECONDS);
        lines.push(curve("sent per second", &self.sent, width));
        lines.push(curve("pending", &self.depth, width));
        let mut shown = self.status.clone();
        if let Some(lanes) = shown["lanes"].as_array_mut() {
            lanes.drain(..self.above.min(lanes.len()));
        }
        lines.extend(status::screen(&shown).lines().map(str::to_owned));
        lines
    }
}

/// The last values as a curve, and the newest as a number.
fn curve(name: &str, values: &VecDeque<f64>, width: usize) -> String {
    let most = values.iter().copied().fold(0.0, f64::max);
    let newest = values.back().copied().unwrap_or_default();
    let level = |value: &f64| match most > 0.0 {
        true => LEVELS[((value / most * 7.0).round() as usize).min(7)],
        false => LEVELS[0],
    };
    let bars: String = values.iter().skip(values.len().saturating_sub(width)).map(level).collect();
    format!("{name:<16} {newest:>9.1} {bars}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_understood_also_when_they_arrive_together() {
        use TopKey::{Down, Hold, Quit, Up};
        assert_eq!(keys(b"jk \x1b[B\x1b[Axq"), [Down, Up, Hold, Down, Up, Quit]);
        assert_eq!(keys(&[3]), [Quit]);
        assert_eq!(keys(b"\x1b"), []);
    }

    #[test]
    fn a_curve_shows_the_last_values_up_to_the_highest() {
        let values: VecDeque<f64> = [0.0, 5.0, 10.0].into();
        assert_eq!(curve("sent", &values, 60), "sent                  10.0 ▁▅█");
        assert_eq!(curve("sent", &values, 1), "sent                  10.0 █");
        assert_eq!(curve("sent", &VecDeque::new(), 60), "sent                   0.0 ");
    }

    #[test]
    fn what_others_wrote_is_one_line_that_steers_nothing() {
        let view = TopView {
            problems: json!({"problems": [{"severity": "critical", "what": "x\u{1b}[2Jy"}]}),
            ..TopView::default()
        };
        assert!(view.lines(80).iter().any(|line| line.starts_with("PROBLEM critical x")));
        assert!(!output::harmless(&view.lines(80)[1]).contains('\u{1b}'));
    }
}
