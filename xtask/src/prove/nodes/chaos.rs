//! Faults while three workers deliver: nothing is lost, repeats are few and have their own ids, and the rate recovers.

use std::collections::HashSet;
use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::cluster::{IN_FLIGHT, NodeCluster, WORKERS};
use super::engine::{self, EngineFault, EngineTimes};
use super::options::NodeProofOptions;
use super::traffic::{PacedSender, RateSeries, accepted_by_id};
use crate::shell;

/// Parts of the time before and after the fault.
const BEFORE: f64 = 0.25;
const AFTER: f64 = 0.35;
/// The first seconds do not count: connections open, limits are found.
const WARM_UP: Duration = Duration::from_secs(4);
const RECOVERED: f64 = 0.95;
const DRAIN_MAX: Duration = Duration::from_secs(300);
/// The provider answers after this time, so that calls are under way when something happens.
const LATENCY_MS: u32 = 100;
const KILL_EVERY: Duration = Duration::from_secs(1);
const CLOCK_AHEAD_S: i64 = 600;

/// What happened to the nodes.
#[derive(Default)]
struct FaultEvents {
    count: usize,
    /// How many deliveries each event may repeat.
    repeats_each: usize,
}

/// What a proof measured.
pub(super) struct ChaosResult {
    name: String,
    events: usize,
    accepted: usize,
    lost: usize,
    unknown: usize,
    repeats: usize,
    repeats_max: usize,
    before: f64,
    during: f64,
    after: f64,
    recovered: Option<Duration>,
    drained: Duration,
    notes: String,
}

impl ChaosResult {
    pub(super) const HEADING: &str = "fault          events accepted  lost repeats  bound  before  during   after  recovered  drained";

    pub(super) fn failures(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut check = |holds: bool, what: String| {
            if !holds {
                found.push(format!("{}: {what}", self.name));
            }
        };
        check(self.lost == 0, format!("{} accepted messages were lost", self.lost));
        check(self.unknown == 0, format!("{} ids that no answer named", self.unknown));
        check(
            self.repeats <= self.repeats_max,
            format!("{} repeats are more than {}", self.repeats, self.repeats_max),
        );
        check(
            self.after >= RECOVERED * self.before,
            format!("{:.0}/s after, {:.0}/s before", self.after, self.before),
        );
        check(self.recovered.is_some(), "the rate did not recover".to_owned());
        found
    }
}

impl fmt::Display for ChaosResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let recovered = self
            .recovered
            .map_or("never".to_owned(), |time| format!("{:.1} s", time.as_secs_f64()));
        write!(
            f,
            "{:<14} {:>6} {:>8} {:>5} {:>7} {:>6} {:>5.0}/s {:>5.0}/s {:>5.0}/s {:>10} {:>8}  {}",
            self.name,
            self.events,
            self.accepted,
            self.lost,
            self.repeats,
            self.repeats_max,
            self.before,
            self.during,
            self.after,
            recovered,
            shell::in_words(self.drained),
            self.notes,
        )
    }
}

/// The faults that every engine shares.
#[derive(Clone, Copy)]
enum NodeFault {
    Kill,
    CutOff,
    Clock,
}

const NODE_FAULTS: [(&str, &str, NodeFault); 3] = [
    ("kill", "kill -9 of a worker every second", NodeFault::Kill),
    ("cut-off", "a worker is cut off from the store, and comes back late", NodeFault::CutOff),
    ("clock", "the clock of a worker is 10 minutes ahead", NodeFault::Clock),
];

/// Runs the chosen faults; answers what each showed.
pub(super) fn run(
    options: &NodeProofOptions,
    chosen: impl Fn(&str) -> bool,
) -> Result<Vec<ChaosResult>> {
    let times = EngineTimes { snapshot: Duration::from_secs(options.snapshot_s) };
    let mut results = Vec::new();
    for (name, promise, fault) in NODE_FAULTS {
        if chosen(name) {
            shell::heading(&format!("{name}: {promise}"));
            let engine = engine::start(&options.engine, &times)?;
            let mut cluster = NodeCluster::start(&engine.store_url(), "", LATENCY_MS)?;
            let result = match fault {
                NodeFault::Kill => chaos(name, options, &mut cluster, Duration::ZERO, kill_workers),
                NodeFault::CutOff => cut_off(name, options, &mut cluster, &*engine),
                NodeFault::Clock => {
                    cluster.set_clock_of(1, CLOCK_AHEAD_S)?;
                    let nothing = |_: &mut NodeCluster, until: Instant| {
                        std::thread::sleep(until.saturating_duration_since(Instant::now()));
                        Ok(FaultEvents::default())
                    };
                    chaos(name, options, &mut cluster, Duration::ZERO, nothing)
                }
            }?;
            eprintln!("{}\n{result}", ChaosResult::HEADING);
            results.push(result);
        }
    }
    results.extend(run_engine_faults(options, &times, chosen)?);
    Ok(results)
}

fn run_engine_faults(
    options: &NodeProofOptions,
    times: &EngineTimes,
    chosen: impl Fn(&str) -> bool,
) -> Result<Vec<ChaosResult>> {
    let mut results = Vec::new();
    for name in engine::fault_names(&options.engine)?.iter().filter(|name| chosen(name)) {
        let engine = engine::start(&options.engine, times)?;
        let mut faults = engine.faults().into_iter();
        let fault = faults.find(|fault| fault.name == *name).context(*name)?;
        shell::heading(&format!("{}: {}", fault.name, fault.promise));
        let mut cluster = NodeCluster::start(&engine.store_url(), "", LATENCY_MS)?;
        let act = |_: &mut NodeCluster, until: Instant| repeat_fault(&fault, until);
        let result = chaos(fault.name, options, &mut cluster, fault.lasts, act)?;
        eprintln!("{}\n{result}", ChaosResult::HEADING);
        results.push(result);
    }
    Ok(results)
}

/// The names of everything that [`run`] can run.
pub(super) fn names(engine: &str) -> Result<Vec<String>> {
    let own = engine::fault_names(engine)?.iter().copied();
    Ok(NODE_FAULTS.iter().map(|(name, ..)| *name).chain(own).map(str::to_owned).collect())
}

fn repeat_fault(fault: &EngineFault, until: Instant) -> Result<FaultEvents> {
    let mut count = 0;
    let repeats_each = if fault.may_repeat { WORKERS * IN_FLIGHT } else { 0 };
    loop {
        let next = Instant::now() + fault.every.unwrap_or_default();
        (fault.act)()?;
        count += 1;
        if fault.every.is_none() || next >= until {
            return Ok(FaultEvents { count, repeats_each });
        }
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}

fn kill_workers(cluster: &mut NodeCluster, until: Instant) -> Result<FaultEvents> {
    let mut count = 0;
    while Instant::now() < until {
        let next = Instant::now() + KILL_EVERY;
        let worker = &mut cluster.workers[count % WORKERS];
        worker.kill();
        worker.spawn()?;
        count += 1;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok(FaultEvents { count, repeats_each: IN_FLIGHT })
}

fn cut_off(
    name: &str,
    options: &NodeProofOptions,
    cluster: &mut NodeCluster,
    engine: &dyn engine::EngineFixture,
) -> Result<ChaosResult> {
    let (url, proxies) = engine.store_behind_proxy()?;
    cluster.configure(Some((1, &url)))?;
    let cut = Duration::from_secs(options.cut_s);
    let mut result = chaos(name, options, cluster, cut, move |_, _| {
        proxies.iter().for_each(|proxy| proxy.stall());
        std::thread::sleep(cut);
        proxies.iter().for_each(|proxy| proxy.go_on());
        Ok(FaultEvents { count: 1, repeats_each: IN_FLIGHT })
    })?;
    let lost = cluster.lines_with("shards were lost")?;
    result.notes = format!("shards lost: said {lost} times");
    ensure!(lost > 0, "the worker that was cut off did not lose its shards");
    Ok(result)
}

/// Hands messages in at a steady rate, with `act` in the middle of it.
fn chaos(
    name: &str,
    options: &NodeProofOptions,
    cluster: &mut NodeCluster,
    lasts: Duration,
    act: impl FnOnce(&mut NodeCluster, Instant) -> Result<FaultEvents>,
) -> Result<ChaosResult> {
    cluster.start_workers()?;
    let usual = options.messages as f64 / options.rate as f64;
    let fits = lasts.as_secs_f64() / (1.0 - BEFORE - AFTER);
    // A fault that lasts gets the same messages over a longer time.
    let all = Duration::from_secs_f64(usual.max(fits));
    let rate = (options.messages as f64 / all.as_secs_f64()).ceil() as usize;
    let hooks = (0..WORKERS * 20).map(|number| cluster.hook(number)).collect();
    let series = RateSeries::watch(cluster.provider);
    let began = Instant::now();
    let sender = PacedSender::start(cluster.api.server_at, hooks, options.messages, rate);
    std::thread::sleep(all.mul_f64(BEFORE));
    let fault_at = Instant::now();
    let events = act(cluster, began + all.mul_f64(1.0 - AFTER))?;
    let over_at = Instant::now();
    let sent_so_far = sender.accepted();
    let log = sender.finish()?;
    let end = Instant::now();
    let lasted = over_at - fault_at;
    eprintln!("{sent_so_far} were accepted when the fault was over, after {lasted:.1?}");
    let drained = await_drained(cluster, &log)?;
    let from = began + WARM_UP.min(all.mul_f64(BEFORE / 2.0));
    // No more than what is handed in: what had waited at the beginning is no rate.
    let before = series.rate(from, fault_at).min(rate as f64);
    let last_part = all.mul_f64(AFTER / 2.0);
    let after = series.rate(end - last_part.min(end - over_at), end);
    Ok(verdict(name, cluster, &log, &events)?.with_rates(
        before,
        series.rate(fault_at, over_at),
        after,
        series.recovered(over_at, RECOVERED * before),
        drained,
    ))
}

impl ChaosResult {
    fn with_rates(
        self,
        before: f64,
        during: f64,
        after: f64,
        recovered: Option<Duration>,
        drained: Duration,
    ) -> Self {
        Self { before, during, after, recovered, drained, ..self }
    }
}

fn verdict(
    name: &str,
    cluster: &NodeCluster,
    log: &HashSet<String>,
    events: &FaultEvents,
) -> Result<ChaosResult> {
    let received = accepted_by_id(cluster.provider)?;
    Ok(ChaosResult {
        name: name.to_owned(),
        events: events.count,
        accepted: log.len(),
        lost: log.iter().filter(|id| received.get(*id).is_none_or(|count| *count == 0)).count(),
        unknown: received.keys().filter(|id| !log.contains(*id)).count(),
        repeats: received.values().map(|count| count.saturating_sub(1)).sum(),
        repeats_max: events.count * events.repeats_each,
        before: 0.0,
        during: 0.0,
        after: 0.0,
        recovered: None,
        drained: Duration::ZERO,
        notes: String::new(),
    })
}

/// Waits until the provider has all of them, or nothing is pending any more.
fn await_drained(cluster: &NodeCluster, log: &HashSet<String>) -> Result<Duration> {
    let began = Instant::now();
    let mut is_empty = false;
    loop {
        let distinct = cluster.received()?["distinct"].as_u64().unwrap_or(0);
        if distinct >= log.len() as u64 || is_empty {
            return Ok(began.elapsed());
        }
        ensure!(
            began.elapsed() < DRAIN_MAX,
            "{distinct} of {} arrived within five minutes",
            log.len()
        );
        std::thread::sleep(Duration::from_millis(200));
        is_empty = pending(cluster).is_ok_and(|pending| pending == 0) && began.elapsed() > WARM_UP;
    }
}

fn pending(cluster: &NodeCluster) -> Result<u64> {
    let stats = postrider_testkit::http::get(cluster.api.server_at, "/v1/stats")?.json()?;
    let states = ["queued", "sending", "retrying", "parked"];
    ensure!(stats["states"].is_object(), "no states in {stats}");
    Ok(states.iter().filter_map(|state| stats["states"][*state].as_u64()).sum::<u64>())
}
