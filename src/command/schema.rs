//! The schema of the command's JSON, made from the types that are serialised.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::output::envelope::SCHEMA;

/// Path of the schema file.
const FILE: &str = "docs/json.schema.json";

/// The schemas of the results, and of a job, by subcommand.
fn commands(types: &mut SchemaGenerator) -> Vec<(&'static str, Value, Option<Value>)> {
    fn of<T: JsonSchema>(types: &mut SchemaGenerator) -> Value {
        types.subschema_for::<T>().to_value()
    }
    let event = of::<crate::events::Line>(types);
    let events = json!({
        "type": "object",
        "description": "The events of a recording.",
        "properties": {
            "trace": {"type": "string", "description": "Path of the recording."},
            "events": {"type": "array", "items": event},
        },
        "required": ["trace", "events"],
        "additionalProperties": false,
    });
    let job = of::<crate::fleet::Fleet>(types);
    vec![
        ("check", of::<crate::check::Checked>(types), None),
        ("config", of::<super::config::Page>(types), None),
        ("diff", of::<crate::diff::DiffReport>(types), None),
        ("doctor", of::<crate::doctor::command::Checks>(types), None),
        ("events", events, None),
        (
            "fragmentation",
            of::<crate::fragmentation::FragmentationReport>(types),
            None,
        ),
        ("growth", of::<crate::growth::GrowthReport>(types), None),
        ("oom", of::<crate::oom::OomReport>(types), None),
        ("peak", of::<crate::peak::PeakReport>(types), None),
        ("phases", of::<crate::phases::PhasesReport>(types), None),
        ("replay", of::<crate::replay::ReplayReport>(types), None),
        ("report", of::<crate::report::Report>(types), Some(job)),
        (
            "timeline",
            of::<crate::timeline::TimelineReport>(types),
            None,
        ),
        ("top", of::<crate::top::Row>(types), None),
        ("tune", of::<crate::tune::TuneReport>(types), None),
    ]
}

fn envelope(command: &str, result: Value, job: Option<Value>) -> Value {
    let mut properties = json!({
        "schema": {"const": SCHEMA},
        "gpushim": {"type": "string", "description": "The version of the command."},
        "command": {"const": command},
        "found": {
            "type": "boolean",
            "description": "Whether the command found what it looks for. Its exit code is then 1; that of `report` only because of a job.",
        },
        "results": {
            "type": "array",
            "description": "One for each recording; for a job the one of its worst rank.",
            "items": result,
        },
    });
    if let Some(job) = job {
        properties["jobs"] = json!({
            "type": "array",
            "description": "Jobs whose ranks were compared.",
            "items": job,
        });
    }
    json!({
        "type": "object",
        "properties": properties,
        "required": ["schema", "gpushim", "command", "found", "results"],
        "additionalProperties": false,
    })
}

/// Forbids other fields in each object, and drops the widths of numbers.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if fields.contains_key("properties") {
                fields.entry("additionalProperties").or_insert(json!(false));
            }
            if fields
                .get("type")
                .is_some_and(|of| of.is_string() || of.is_array())
            {
                fields.remove("format");
            }
            fields.values_mut().for_each(close);
        }
        Value::Array(all) => all.iter_mut().for_each(close),
        _ => {}
    }
}

fn schema() -> String {
    let mut types = SchemaSettings::draft2020_12()
        .for_serialize()
        .into_generator();
    let commands = commands(&mut types);
    let mut definitions: Map<String, Value> = types.take_definitions(true);
    let mut any = Vec::new();
    for (command, result, job) in commands {
        definitions.insert(format!("command-{command}"), envelope(command, result, job));
        any.push(json!({"$ref": format!("#/$defs/command-{command}")}));
    }
    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The JSON of gpushim",
        "description": "What `gpushim COMMAND --format json` prints. Bytes are bytes, times are ns since the start of the recording.",
        "oneOf": any,
        "$defs": definitions,
    });
    close(&mut schema);
    format!("{schema:#}\n")
}

#[test]
fn the_schema_in_the_documents_is_current() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
    let schema = schema();
    if std::env::var_os("GPUSHIM_WRITE_SCHEMA").is_some() {
        std::fs::write(&path, &schema).expect("written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == schema,
        "{FILE}: GPUSHIM_WRITE_SCHEMA=1 cargo test -p gpushim --lib the_schema_in_the_documents_is_current"
    );
}

#[test]
fn each_subcommand_that_prints_json_has_a_schema() {
    use clap::CommandFactory;
    let command = super::Cli::command();
    let prints = |sub: &&clap::Command| {
        let format = sub
            .get_arguments()
            .find(|argument| argument.get_id() == "format");
        let values = format
            .map(|argument| argument.get_possible_values())
            .unwrap_or_default();
        values.iter().any(|value| value.get_name() == "json")
    };
    let mut printing: Vec<&str> = command
        .get_subcommands()
        .filter(prints)
        .map(|sub| sub.get_name())
        .collect();
    printing.sort_unstable();
    let mut types = SchemaSettings::draft2020_12()
        .for_serialize()
        .into_generator();
    let known: Vec<&str> = commands(&mut types)
        .iter()
        .map(|(name, ..)| *name)
        .collect();
    assert_eq!(printing, known);
}
