//! No line of a history breaks its reader or the checker.

use lock_testkit::fuzz::texts;
use lock_testkit_checker::history::History;
use lock_testkit_checker::report::page;
use lock_testkit_checker::{check, picture};

const HISTORY: &str = r#"{"t":5,"proc":"w","op":"acquire","id":"w.1","phase":"ok","token":7,"held":true,"deadline":90}

{"t":1,"proc":"w","op":"acquire","id":"w.1","phase":"invoke","owner":"w","res":"a","kind":"mutex","ttl":100}
{"t":9,"proc":"w","op":"release","id":"w.1","phase":"fail","err":"not_held"}
{"t":9,"proc":"w","op":"end"}
"#;

/// Events that are read are written and read again, and can be judged and drawn.
#[test]
fn no_line_breaks_the_reader_or_the_checker() {
    let samples = [
        HISTORY,
        concat!(
            r#"{"t":1,"proc":"w","op":"acquire","id":"w.1","phase":"invoke","owner":"w","res":"a","kind":"mutex","ttl":100}"#,
            "\n",
            r#"{"t":2,"proc":"w","op":"release","id":"w.1","phase":"invoke"}"#,
            "\n",
            r#"{"t":3,"proc":"w","op":"release","id":"w.1","phase":"ok"}"#,
            "\n",
            r#"{"t":10,"proc":"w","op":"acquire","id":"w.1","phase":"ok","token":7,"held":true,"deadline":90}"#,
            "\n",
            r#"{"t":20,"proc":"w","op":"end"}"#,
        ),
        r#"{"t":3,"proc":"m","op":"run","backend":"b","seed":7,"rules":{"renewed":false,"least":{"grants":0}}}"#,
        concat!(
            r#"{"t":5,"proc":"w","op":"acquire","id":"w.2","phase":"invoke","owner":"w.2","res":"a","kind":"sem","ttl":100,"permits":2,"limit":3,"group":"g"}"#,
            "\n",
            r#"{"t":6,"proc":"w","op":"acquire","id":"w.2","phase":"ok","token":7,"grant":"g2","sent":5,"depth":1,"held":true,"deadline":90}"#,
            "\n",
            r#"{"t":7,"proc":"w","op":"renew","id":"w.2","phase":"ok","sent":6,"ttl":50}"#,
            "\n",
            r#"{"t":8,"proc":"w","op":"change","id":"w.2","phase":"invoke","kind":"read","permits":1}"#,
        ),
        concat!(
            r#"{"t":5,"proc":"m","op":"fault","id":"f","phase":"start","name":"sigstop","target":"w","proof":"T"}"#,
            "\n",
            r#"{"t":9,"proc":"m","op":"theft","session":"0x1","grants":["g2"],"after":6}"#,
            "\n",
            r#"{"t":9,"proc":"m","op":"truth","res":"a","kind":"mutex","after":8,"holders":["g2","g3"]}"#,
            "\n",
            r#"{"t":9,"proc":"m","op":"death","victim":"w"}"#,
        ),
        concat!(
            r#"{"t":9,"proc":"r","op":"access","id":"w.2","target":"x","fenced":true,"token":7,"shared":false,"write":1,"accepted":true}"#,
            "\n",
            r#"{"t":9,"proc":"w","op":"lost","id":"w.2","reason":"taken"}"#,
            "\n",
            r#"{"t":9,"proc":"m","op":"woken","res":"a","count":2}"#,
            "\n",
            r#"{"t":9,"proc":"m","op":"residue","entries":["k"]}"#,
        ),
    ];
    texts("lines of a history", &samples, |text| {
        let Ok(history) = History::parse(text) else { return };
        let written: Vec<_> = history.events().iter().map(|event| serde_json::to_string(event).unwrap()).collect();
        assert_eq!(History::parse(&written.join("\n")).unwrap().events(), history.events());
        let judgement = check(&history, None).to_string();
        assert!(judgement.contains("verdict"));
        page(&picture(&history, None)).unwrap();
    });
}
