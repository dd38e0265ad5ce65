//! The interface: status, policy, metrics, and questions that make no sense.

use crate::house::House;
use crate::tenant::{TestTenant, hello};
use crate::{PATIENCE, until};
use detshare_api::ClientError;
use detshare_board::{Noted, TenantView, clock};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// As somebody asks who has no client of ours: the status and the body.
fn ask(house: &House, question: &str) -> (u16, String) {
    let mut stream = UnixStream::connect(house.folder().daemon_socket()).expect("a daemon listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    stream.write_all(question.as_bytes()).expect("asked");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    let status = answer.split_whitespace().nth(1).and_then(|status| status.parse().ok()).expect("HTTP");
    let body = answer.split_once("\r\n\r\n").expect("a head").1.to_string();
    (status, body)
}

fn request(line: &str, body: &str) -> String {
    format!("{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

#[test]
fn the_status_says_what_there_is() {
    let house = House::new();
    let status = house.client().status().expect("answered");
    assert_eq!(status.pid, house.pid().as_raw_nonzero().get().cast_unsigned());
    assert_eq!((status.folder, status.tenants), (house.run_folder(), 0));
    assert_eq!(status.profiles.folder, Some(house.path("state/detshare/profiles")));
    assert!(humantime::parse_rfc3339(&status.started).is_ok(), "{}", status.started);
}

#[test]
fn the_policy_can_be_set_by_hand() {
    let house = House::with_config("isolation = \"process\"\npolicy = \"exclusive\"\n");
    let tenant = TestTenant::join(&house.run_folder(), &hello("train")).expect("taken in");
    let status = house.client().set_policy("exclusive").expect("done");
    assert_eq!(status.policy, "exclusive");
    assert_eq!(Some(tenant.policy()), detshare_policy::number("exclusive"));
    let refused = house.client().set_policy("best").expect_err("there is none");
    assert!(matches!(refused, ClientError::Refused { status: 422, .. }), "{refused}");
    assert!(refused.to_string().contains("fair"), "it names those that there are: {refused}");
}

#[test]
fn questions_that_make_no_sense_have_answers() {
    let house = House::new();
    let _tenant = TestTenant::join(&house.run_folder(), &hello("train")).expect("taken in");
    for (line, body, status) in [
        ("GET /", "", 404),
        ("GET /v2/status", "", 404),
        ("DELETE /v1/status", "", 405),
        ("GET /v1/tenants/nobody", "", 404),
        ("GET /v1/tenants/4294967296", "", 404),
        ("PATCH /v1/tenants/train", "{", 400),
        ("PATCH /v1/tenants/train", "{\"wieght\": 1}", 400),
        ("PATCH /v1/tenants/train", "{\"class\": \"urgent\"}", 400),
        ("PATCH /v1/tenants/train", "{\"weight\": -1}", 400),
        ("PUT /v1/policy", "[]", 400),
        ("GET /v1/tenants/%ff", "", 400),
        ("PATCH /v1/tenants/train", &" ".repeat(100_000), 413),
    ] {
        let (found, answer) = ask(&house, &request(line, body));
        assert_eq!(found, status, "{line} {body}: {answer}");
        let answer: serde_json::Value = serde_json::from_str(&answer).expect("JSON");
        assert!(answer["error"].is_string() && answer["hint"].is_string(), "{line}: {answer}");
    }
    let (status, _) = ask(&house, "nonsense\r\n\r\n");
    assert_eq!(status, 400);
    let (status, answer) = ask(&house, &request("PATCH /v1/tenants/train", "{}"));
    assert_eq!(status, 200, "{answer}");
}

/// Who asks why launches went as they did learns what those took that came after the question, from the answer to it.
#[test]
fn an_answer_has_what_launches_took_since_the_question() {
    /// Between two launches of the tenant.
    const PACE: Duration = Duration::from_millis(1);
    let house = House::new();
    let tenant = TestTenant::join(&house.run_folder(), &hello("train")).expect("taken in");
    let view = TenantView::map(tenant.page.file()).expect("mapped");
    let ask = || house.client().explain("train").expect("answered").decisions;
    assert!(!tenant.is_asked() && ask().is_empty());
    until("it is asked", || {
        ask();
        tenant.is_asked().then_some(())
    });
    let (is_over, begun) = (AtomicBool::new(false), Instant::now());
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) && begun.elapsed() < PATIENCE {
                let number = tenant.page.note_decision(&Noted { at_ns: clock::now(), ..Noted::default() });
                if tenant.is_asked() {
                    tenant.page.note_measured(number, 310_000);
                }
                thread::sleep(PACE);
            }
        });
        // On a busy machine it may launch too little meanwhile.
        until("most are known", || {
            let is_unknown = || view.decisions().iter().all(|noted| noted.measured_ns == 0);
            until("none is known", || (!tenant.is_asked() && is_unknown()).then_some(()));
            let decisions = ask();
            let known = decisions.iter().filter(|decision| decision.measured_ns == Some(310_000)).count();
            (known > decisions.len() / 2).then_some(())
        });
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn metrics_can_be_read() {
    let house = House::new();
    let tenant = TestTenant::join(&house.run_folder(), &hello("train")).expect("taken in");
    tenant.page.set_memory(1 << 30);
    (0..3).for_each(|_| tenant.step(2_000_000));
    drop(tenant.page.hold());
    tenant.page.set_begun(clock::now());
    tenant.page.note_objectives([None, None, Some(false)], true);
    tenant.page.note_objectives([None, None, Some(true)], true);
    let metrics = house.client().metrics().expect("answered");
    let values = parse(&metrics);
    let labels = format!("{{tenant=\"train\",pid=\"{}\"}}", std::process::id());
    let of_tenant = |name: &str| values[&format!("detshare_tenant_{name}{labels}")];
    assert_eq!([of_tenant("launches_total"), of_tenant("finished_total"), of_tenant("steps_total")], [3.0; 3]);
    assert_eq!([of_tenant("holds_total"), of_tenant("holding")], [1.0, 0.0]);
    assert_eq!(of_tenant("memory_bytes"), f64::from(1 << 30));
    assert_eq!(of_tenant("strained"), 1.0);
    let missed: Vec<_> = values.iter().filter(|(name, _)| name.contains("missed_ratio")).collect();
    assert!(matches!(missed[..], [(name, 0.5)] if name.contains("objective=\"tpot\"")), "{missed:?}");
    assert_eq!(
        [values["detshare_tenants"], values["detshare_joins_total"], values["detshare_slots"]],
        [1.0, 1.0, 64.0]
    );
    assert!(values["detshare_uptime_seconds"] > 0.0);
    let info = values.keys().find(|name| name.starts_with("detshare_tenant_info")).expect("there");
    assert!(info.contains("class=\"best-effort\"") && info.contains("lane=\"full\""), "{info}");
    drop(tenant);
    house.until_count(0);
    let metrics = house.client().metrics().expect("answered");
    assert!(!metrics.contains("\"train\""), "nothing is kept of those who have left: {metrics}");
}

/// Every line is a comment or a name, labels and a number, and the end is marked.
fn parse(text: &str) -> BTreeMap<String, f64> {
    assert!(text.ends_with("# EOF\n"), "{text}");
    let lines = text.lines().filter(|line| !line.starts_with("# "));
    let value = |line: &str| {
        let (name, value) = line.rsplit_once(' ').expect("a name and a number");
        let end = name.find('{').unwrap_or(name.len());
        assert!(name[..end].bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'), "{line}");
        (name.to_string(), value.parse().expect("a number"))
    };
    lines.map(value).collect()
}
