//! peer-duroxide: duroxide on SQLite or PostgreSQL.
//!
//! usage: peer-duroxide --url URL [--seconds S] [--width N] [--tune NAME=VALUE]... sequential|single|fanout
//!
//! Prints one line of JSON, as durite-bench has it in its results.
use duroxide::providers::sqlite::SqliteProvider;
use duroxide::providers::Provider;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::runtime::{ObservabilityConfig, OrchestrationStatus, Runtime, RuntimeOptions};
use duroxide::{ActivityContext, Client, OrchestrationContext, OrchestrationRegistry};
use duroxide_pg::PostgresProvider;
use serde_json::{json, Value};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

type Fallible<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const IN_FLIGHT: usize = 20;
const STEPS: u64 = 5;

struct Options {
    url: String,
    seconds: f64,
    width: u64,
    tune: HashMap<String, String>,
    workload: String,
}

impl Options {
    fn parse() -> Fallible<Options> {
        let mut all =
            Options { url: String::new(), seconds: 10.0, width: 100, tune: HashMap::new(), workload: String::new() };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or(format!("{arg} needs a value"));
            match arg.as_str() {
                "--url" => all.url = value()?,
                "--seconds" => all.seconds = value()?.parse()?,
                "--width" => all.width = value()?.parse()?,
                "--tune" => {
                    let pair = value()?;
                    let (name, setting) = pair.split_once('=').ok_or("--tune takes NAME=VALUE")?;
                    all.tune.insert(name.into(), setting.into());
                }
                _ => all.workload = arg,
            }
        }
        Ok(all)
    }

    /// A setting by name; the default is the fastest of those that were tried (README).
    fn setting(&self, name: &str, default: u64) -> u64 {
        self.tune.get(name).map_or(default, |text| text.parse().expect("a number"))
    }
}

/// The provider, and what its connections say of their durability.
async fn open_store(options: &Options) -> Fallible<(Arc<dyn Provider>, Value)> {
    if let Some(path) = options.url.strip_prefix("sqlite:") {
        std::fs::File::create(path)?;
        let store = SqliteProvider::new(&options.url, None).await?;
        let level = options.setting("synchronous", 2);
        let mut connections = Vec::new();
        let mut read_back: Vec<i64> = Vec::new();
        // The provider's own pragma is not one that SQLite knows, which leaves synchronous=NORMAL: no fsync per commit.
        for _ in 0..store.get_pool().options().get_max_connections() {
            let mut connection = store.get_pool().acquire().await?;
            if level == 2 {
                sqlx::query("PRAGMA synchronous = FULL").execute(&mut *connection).await?;
            }
            read_back.push(sqlx::query_scalar("PRAGMA synchronous").fetch_one(&mut *connection).await?);
            connections.push(connection); // held until all are open, so that each is another one
        }
        let journal: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut *connections[0]).await?;
        let settings = json!({ "journal_mode": journal, "synchronous": read_back[0], "connections": read_back.len() });
        drop(connections);
        return Ok((Arc::new(store), settings));
    }
    let pool = options.setting("pool", 20);
    std::env::set_var("DUROXIDE_PG_POOL_MAX", pool.to_string());
    let schema = format!("duroxide_{}", std::process::id());
    let store = PostgresProvider::new_with_schema(&options.url, Some(&schema)).await?;
    let fsync: String = sqlx::query_scalar("SHOW fsync").fetch_one(store.pool()).await?;
    let commit: String = sqlx::query_scalar("SHOW synchronous_commit").fetch_one(store.pool()).await?;
    Ok((Arc::new(store), json!({ "fsync": fsync, "synchronous_commit": commit, "pool": pool })))
}

async fn noop(_: ActivityContext, _: String) -> Result<String, String> {
    Ok(String::new())
}

async fn steps(ctx: OrchestrationContext, count: String) -> Result<String, String> {
    for _ in 0..count.parse::<u64>().expect("a count") {
        ctx.schedule_activity("Noop", "").await?;
    }
    Ok(String::new())
}

async fn fan(ctx: OrchestrationContext, width: String) -> Result<String, String> {
    let all = (0..width.parse::<u64>().expect("a width")).map(|_| ctx.schedule_activity("Noop", "")).collect();
    ctx.join(all).await.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(String::new())
}

struct Bench {
    client: Client,
    next: AtomicU64,
    wait: Duration,
}

impl Bench {
    /// Start to result, in microseconds.  wait_for_orchestration backs off from 5 to 100 ms; asking more often is faster.
    async fn run(&self, name: &str, input: u64) -> Fallible<f64> {
        let id = format!("i{}", self.next.fetch_add(1, Ordering::Relaxed));
        let begin = Instant::now();
        self.client.start_orchestration(&id, name, input.to_string()).await?;
        loop {
            match self.client.get_orchestration_status(&id).await? {
                OrchestrationStatus::Completed { .. } => return Ok(begin.elapsed().as_secs_f64() * 1e6),
                OrchestrationStatus::Failed { details, .. } => return Err(details.display_message().into()),
                _ => tokio::time::sleep(self.wait).await,
            }
        }
    }

    async fn closed_loop(self: &Arc<Self>, clients: usize, steps: u64, seconds: f64) -> Fallible<Value> {
        let begin = Instant::now();
        let mut tasks = Vec::new();
        for _ in 0..clients {
            let bench = self.clone();
            tasks.push(tokio::spawn(async move {
                let (mut latencies, mut failures) = (Vec::new(), 0);
                while begin.elapsed().as_secs_f64() < seconds {
                    match bench.run("Steps", steps).await {
                        Ok(us) => latencies.push(us),
                        Err(error) => {
                            eprintln!("peer-duroxide: {error}");
                            failures += 1;
                        }
                    }
                }
                (latencies, failures)
            }));
        }
        let (mut latencies, mut failures) = (Vec::new(), 0);
        for task in tasks {
            let (some, failed) = task.await?;
            latencies.extend(some);
            failures += failed;
        }
        if latencies.is_empty() {
            return Err("no orchestration completed".into());
        }
        let rate = latencies.len() as f64 / begin.elapsed().as_secs_f64();
        latencies.sort_by(f64::total_cmp);
        let percentile = |p: usize| latencies[(latencies.len() * p / 100).min(latencies.len() - 1)];
        Ok(json!({ "orchestrations_per_s": rate, "steps_per_s": rate * steps as f64,
                   "p50_us": percentile(50), "p99_us": percentile(99), "failures": failures }))
    }
}

#[tokio::main]
async fn main() -> Fallible<()> {
    let options = Options::parse()?;
    let (store, mut settings) = open_store(&options).await?;
    let alone = options.workload == "single";
    let sqlite = options.url.starts_with("sqlite:");
    let poll_us = options.setting("poll_us", if sqlite && !alone { 5000 } else { 1000 });
    let wait_us = options.setting("wait_us", if alone { 1000 } else { 20000 });
    let slots = options.setting(
        "slots",
        if sqlite {
            2
        } else if alone {
            1
        } else {
            8
        },
    ) as usize;
    let tuned = RuntimeOptions {
        dispatcher_min_poll_interval: Duration::from_micros(poll_us),
        orchestration_concurrency: slots,
        worker_concurrency: slots,
        observability: ObservabilityConfig { log_level: "error".into(), ..Default::default() },
        ..Default::default()
    };
    settings["dispatcher_min_poll_interval_us"] = json!(poll_us);
    settings["orchestration_concurrency"] = json!(slots);
    settings["worker_concurrency"] = json!(slots);
    settings["result_poll_interval_us"] = json!(wait_us);
    let activities = ActivityRegistry::builder().register("Noop", noop).build();
    let orchestrations = OrchestrationRegistry::builder().register("Steps", steps).register("Fan", fan).build();
    let _runtime = Runtime::start_with_options(store.clone(), activities, orchestrations, tuned).await;
    let bench =
        Arc::new(Bench { client: Client::new(store), next: AtomicU64::new(0), wait: Duration::from_micros(wait_us) });
    bench.run("Steps", 1).await?;
    let (params, metrics) = match options.workload.as_str() {
        "sequential" => {
            (json!({ "in_flight": IN_FLIGHT }), bench.closed_loop(IN_FLIGHT, STEPS, options.seconds).await?)
        }
        "single" => (json!({}), bench.closed_loop(1, 1, options.seconds).await?),
        "fanout" => {
            (json!({ "width": options.width }), json!({ "seconds": bench.run("Fan", options.width).await? / 1e6 }))
        }
        other => return Err(format!("no workload \"{other}\": sequential, single or fanout").into()),
    };
    let (name, version) = if sqlite { ("sqlite", "0.1.32") } else { ("postgres", "0.1.32, duroxide-pg 0.1.38") };
    println!(
        "{}",
        json!({ "workload": options.workload, "store": name, "params": params, "metrics": metrics,
                           "peer": "duroxide", "version": version, "settings": settings })
    );
    std::process::exit(0) // its shutdown waits a second, and nothing is left to keep
}
