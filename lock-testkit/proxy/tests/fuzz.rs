//! A fault that is read as JSON, whatever it says, is the same after it was written and read again.

use lock_testkit::fuzz::texts;
use lock_testkit_proxy::LinkFault;

#[test]
fn faults_are_written_as_they_are_read() {
    let samples = [
        r#"{"toxic":{"Delay":{"by":{"secs":0,"nanos":3},"jitter":{"secs":1,"nanos":0}}},"direction":"ToClient","trigger":"Now","seed":7}"#,
        r#"{"toxic":{"CutAfter":{"bytes":3}},"direction":"Both","trigger":{"OnRequest":{"nth":2,"containing":"SET"}},"seed":0}"#,
        r#"{"toxic":"Swallow","direction":"ToServer","trigger":{"AfterBytes":9},"seed":0}"#,
    ];
    texts("faults as JSON", &samples, |json| {
        let Ok(fault) = serde_json::from_str::<LinkFault>(json) else { return };
        let written = serde_json::to_string(&fault).expect("what was read can be written");
        assert_eq!(serde_json::from_str::<LinkFault>(&written).expect("what was written can be read"), fault);
    });
}
