//! A thread that answers in place of the daemon, with tenants that nobody has to run.

use crate::stage::Stage;
use detshare_api::{Class, Isolation, Missed, Objective, RuntimeFolder, Status, StepLength, Tenant, TenantPatch};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex};

/// It goes with the test's process.
pub(crate) struct FakeDaemon {
    asked: Arc<Mutex<Vec<String>>>,
}

impl FakeDaemon {
    /// Answers in the stage's runtime folder from now on.
    pub(crate) fn start(stage: &Stage) -> Self {
        Self::start_with(stage, tenants())
    }

    /// With other tenants than the usual ones.
    pub(crate) fn start_with(stage: &Stage, mut tenants: Vec<Tenant>) -> Self {
        let folder = RuntimeFolder::make(&stage.runtime_folder()).unwrap();
        let listener = UnixListener::bind(folder.daemon_socket()).unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (log, status) = (Arc::clone(&asked), status(folder));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                // Whoever hangs up in the middle is no matter.
                let _ = answer(&stream.unwrap(), &status, &mut tenants, &log);
            }
        });
        Self { asked }
    }

    /// All changes that were asked for, as `METHOD path body`.
    pub(crate) fn changes(&self) -> Vec<String> {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|asked| !asked.starts_with("GET ")).cloned().collect()
    }
}

fn answer(
    mut stream: &UnixStream,
    status: &Status,
    tenants: &mut [Tenant],
    log: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let body = String::from_utf8(body).unwrap();
    let mut words = first.split_whitespace();
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    log.lock().unwrap().push(format!("{method} {path} {body}").trim().to_string());
    let (code, text) = respond(method, path, &body, status, tenants);
    write!(
        stream,
        "HTTP/1.1 {code} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{text}",
        text.len()
    )
}

fn respond(method: &str, path: &str, body: &str, status: &Status, tenants: &mut [Tenant]) -> (u16, String) {
    let json = |value: serde_json::Value| (200, value.to_string());
    match (method, path.strip_prefix("/v1/tenants/")) {
        ("PATCH", Some(name)) => {
            let Some(tenant) = tenants.iter_mut().find(|tenant| tenant.name == name || tenant.pid.to_string() == name)
            else {
                return (404, format!(r#"{{"error": "there is no tenant {name}", "hint": "see `detshare ps`"}}"#));
            };
            let patch: TenantPatch = serde_json::from_str(body).unwrap();
            tenant.paused = patch.paused.unwrap_or(tenant.paused);
            tenant.class = patch.class.unwrap_or(tenant.class);
            tenant.weight = patch.weight.unwrap_or(tenant.weight);
            tenant.memory_limit = patch.memory.unwrap_or(tenant.memory_limit);
            tenant.objective.p99_ns = patch.p99_ns.unwrap_or(tenant.objective.p99_ns);
            json(serde_json::to_value(&*tenant).unwrap())
        }
        // One that says what cannot be.
        ("GET", Some("train/decisions")) => {
            let tenant = tenants.iter().find(|tenant| tenant.name == "train").expect("it is there");
            let doubted = serde_json::to_value(Tenant { doubts: true, ..tenant.clone() }).unwrap();
            let decision = serde_json::json!({
                "ago_ns": 5_000_000, "kernel": "matmul", "lane_width": 132, "held_ns": 0,
                "reason": "over before the next step is due", "measured_ns": 310_000,
                "assumed_ns": 100_000, "assumed_because": "what is stored of it cannot be", "due_not_believed": true,
            });
            json(serde_json::json!({
                "tenant": doubted, "policy": "slo-aware", "aggressiveness": 0.25, "decisions": [decision],
            }))
        }
        ("GET", Some("serve/decisions")) => {
            let tenant = tenants.iter().find(|tenant| tenant.name == "serve").expect("it is there");
            json(serde_json::json!({
                "tenant": tenant, "policy": "slo-aware", "aggressiveness": 0.25, "decisions": [],
            }))
        }
        ("GET", None) if path == "/v1/tenants" => json(serde_json::to_value(&*tenants).unwrap()),
        ("GET" | "PUT", None) if path != "/v1/nonsense" => json(serde_json::to_value(status).unwrap()),
        _ => (500, r#"{"error": "nothing is here"}"#.to_string()),
    }
}

fn status(folder: RuntimeFolder) -> Status {
    serde_json::from_value(serde_json::json!({
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "started": "2026-01-01T00:00:00Z",
        "uptime_s": 61,
        "policy": "exclusive",
        "policy_reason": "isolation is process",
        "aggressiveness": 0.25,
        "isolation": Isolation::Process,
        "folder": folder.path(),
        "config": {"file": "/etc/detshare.toml", "error": "line 3: unknown key"},
        "tenants": 2,
        "slots": 64,
        "environment": {"CUDA_MPS_PIPE_DIRECTORY": "/run/pipes"},
        "profiles": {"folder": null, "files": 0, "set_aside": 0},
    }))
    .unwrap()
}

/// One of each class.
pub(crate) fn tenants() -> Vec<Tenant> {
    let serve = Tenant {
        name: "serve".to_string(),
        pid: 4001,
        slot: 0,
        class: Class::Latency,
        paused: false,
        busy: true,
        lane: "full".to_string(),
        lane_width: 132,
        step: 1000,
        steps_per_second: 20.5,
        step_p50_ns: Some(1_230_000),
        step_p99_ns: Some(4_560_000),
        launches: 50_000,
        launches_per_second: 1025.0,
        finished: 49_990,
        holding: false,
        holds: 0,
        holds_per_second: 0.0,
        held_ns: 0,
        memory: 40 << 30,
        memory_limit: None,
        weight: 100,
        objective: Objective { p99_ns: Some(5_000_000), ttft_ns: None, tpot_ns: None },
        gpu: "DetShare software GPU".to_string(),
        width: 132,
        mps_client: None,
        joined: "2026-01-01T00:00:00Z".to_string(),
        command: "python3 serve.py, --port 80".to_string(),
        phase: None,
        pace_ns: None,
        step_lengths: vec![StepLength { width: 132, ns: 1_230_000 }, StepLength { width: 64, ns: 1_500_000 }],
        quarantined: false,
        missed: Missed::default(),
        strained: false,
        stalled: false,
        doubts: false,
    };
    let train = Tenant {
        name: "train".to_string(),
        pid: 4002,
        slot: 1,
        class: Class::BestEffort,
        busy: false,
        lane: "rest16".to_string(),
        lane_width: 116,
        step_lengths: Vec::new(),
        step: 0,
        steps_per_second: 0.0,
        step_p50_ns: None,
        step_p99_ns: None,
        memory_limit: Some(64 << 30),
        command: "python3 train.py".to_string(),
        ..serve.clone()
    };
    vec![serve, train]
}
