//! `templates`: list, show, set and delete templates, and preview messages.

use std::path::{Path, PathBuf};

use super::prelude::*;

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  postrider templates set shipped --file shipped.json
  postrider templates preview shipped --locale de --var order.number=91
  postrider templates preview shipped --vars variables.json --channel sms
  postrider templates preview --file shipped.json --var name=Ada     (before it is saved)
  postrider send --email ada@example.org --template shipped --var order.number=91

A file is JSON or TOML: {\"default_locale\": \"en\", \"locales\": {\"en\": {\"title\": \"Order {{ order.number }}\"}}}.
With an admin key and --tenant '*' a template is for every tenant.")]
pub(super) enum TemplatesCommand {
    /// List all templates with owner and source.
    List,
    /// Show one template with its content.
    Show { name: String },
    /// Create or replace a template. Takes effect at once and survives restarts.
    Set {
        name: String,
        /// JSON or TOML; - for standard input.
        #[arg(long, value_name = "FILE")]
        file: PathBuf,
    },
    /// Delete a template. A template of that name in the file or of the server is in force again.
    Delete { name: String },
    /// Show what each channel would send, and which variables are missing. Sends nothing.
    Preview {
        #[arg(required_unless_present = "file")]
        name: Option<String>,
        /// A template that is not saved, instead of a name.
        #[arg(long, value_name = "FILE", conflicts_with = "name")]
        file: Option<PathBuf>,
        #[command(flatten)]
        variables: TemplateVariableArgs,
        /// Only one channel.
        #[arg(long)]
        channel: Option<String>,
    },
}

/// The locale and the variables of a template.
#[derive(Debug, Args)]
pub(super) struct TemplateVariableArgs {
    /// The locale, e.g. de-AT; falls back to de, then to the default of the template.
    #[arg(long, value_name = "TAG")]
    locale: Option<String>,
    /// NAME=VALUE; the value is JSON or plain text. order.number=91 sets a field of an object.
    #[arg(long = "var", value_name = "NAME=VALUE")]
    variables: Vec<String>,
    /// A file with all variables as a JSON object.
    #[arg(long, value_name = "FILE")]
    vars: Option<PathBuf>,
}

impl TemplateVariableArgs {
    /// `locale` and `variables`, as the API takes them.
    pub(super) fn fields(&self) -> Result<Map<String, Value>, CliError> {
        let mut variables = match &self.vars {
            None => Map::new(),
            Some(file) => match serde_json::from_str(&read(file)?) {
                Ok(Value::Object(variables)) => variables,
                Ok(_) => return Err(unusable(file, "not a JSON object")),
                Err(error) => return Err(unusable(file, error)),
            },
        };
        for assignment in &self.variables {
            let malformed =
                || CliError::Usage(format!("{assignment:?} is not of the form NAME=VALUE"));
            let (path, text) = assignment.split_once('=').ok_or_else(malformed)?;
            super::settings::put(&mut variables, path, value(text)).ok_or_else(malformed)?;
        }
        let mut fields = Map::from_iter([("variables".to_owned(), Value::Object(variables))]);
        fields.extend(self.locale.clone().map(|locale| ("locale".to_owned(), locale.into())));
        Ok(fields)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.locale.is_none() && self.variables.is_empty() && self.vars.is_none()
    }
}

/// The text as JSON, except for numbers that JSON writes differently: a price of 1.50 stays 1.50.
fn value(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(Value::Number(number)) if number.to_string() != text => text.into(),
        Ok(value) => value,
        Err(_) => text.into(),
    }
}

pub(super) async fn run(command: TemplatesCommand, session: ServerSession) -> CliResult {
    let one = |name: &str| Ok::<_, CliError>(format!("/v1/templates/{}", path_segment(name)?));
    match command {
        TemplatesCommand::List => {
            session.get("/v1/templates", |list| table(&rows(list), &COLUMNS)).await
        }
        TemplatesCommand::Show { name } => session.get(&one(&name)?, detail).await,
        TemplatesCommand::Set { name, file } => {
            session.put(&one(&name)?, &template(&file)?, detail).await
        }
        TemplatesCommand::Delete { name } => session.delete(&one(&name)?, "deleted", &name).await,
        TemplatesCommand::Preview { name, file, variables, channel } => {
            let mut body = variables.fields()?;
            body.extend(channel.map(|channel| ("channel".to_owned(), channel.into())));
            let path = match (name, file) {
                (Some(name), _) => format!("{}/preview", one(&name)?),
                (None, file) => {
                    let source = file.as_deref().map(template).transpose()?;
                    body.insert("template".to_owned(), source.unwrap_or_default());
                    "/v1/templates/preview".to_owned()
                }
            };
            let result = session.client.post(&path, &Value::Object(body)).await?;
            session.out.show(&result, preview)?;
            if result["ready"] == true { Ok(()) } else { Err(CliError::Silent) }
        }
    }
}

/// Reads a template from a file. The output of `show --json` is accepted, too.
fn template(file: &Path) -> Result<Value, CliError> {
    let text = read(file)?;
    let parsed: Value = match text.trim_start().starts_with('{') {
        true => serde_json::from_str(&text).map_err(|error| unusable(file, error))?,
        false => toml::from_str(&text).map_err(|error| unusable(file, error))?,
    };
    let Value::Object(mut fields) = parsed else { return Err(unusable(file, "not an object")) };
    if fields.contains_key("owner") {
        fields.retain(|name, _| ["default_locale", "strict", "locales"].contains(&name.as_str()));
    }
    Ok(Value::Object(fields))
}

fn read(file: &Path) -> Result<String, CliError> {
    let path = if file == Path::new("-") { Path::new("/dev/stdin") } else { file };
    std::fs::read_to_string(path).map_err(|error| unusable(file, error))
}

fn unusable(file: &Path, why: impl std::fmt::Display) -> CliError {
    CliError::Usage(format!("{}: {why}", file.display()))
}

const COLUMNS: [(&str, &str); 6] = [
    ("TEMPLATE", "/name"),
    ("OWNER", "/owner"),
    ("SOURCE", "/source"),
    ("LOCALES", "/locales"),
    ("STRICT", "/strict"),
    ("VARIABLES", "/variables"),
];

fn rows(list: &Value) -> Vec<Value> {
    let joined = |row: &Value, field: &str| Value::from(texts(&row[field]).join(", "));
    let row = |row: &Value| {
        let mut shown = row.clone();
        shown["locales"] = joined(row, "locales");
        shown["variables"] = joined(row, "variables");
        shown
    };
    items(list, "templates").iter().map(row).collect()
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

fn detail(shown: &Value) -> String {
    let (name, owner, source) =
        (cell(shown, "/name"), cell(shown, "/owner"), cell(shown, "/source"));
    let strict = if shown["strict"] == true { "strict" } else { "not strict" };
    let mut text = format!("{name} ({owner}, {source}), {strict}");
    if shown["set_by"].is_string() {
        text += &format!(", set by {} at {}", cell(shown, "/set_by"), cell(shown, "/set_at"));
    }
    text += &format!("\nvariables: {}", texts(&shown["variables"]).join(", "));
    for (locale, content) in shown["locales"].as_object().into_iter().flatten() {
        let is_default = shown["default_locale"] == locale.as_str();
        text += &format!("\n\n{locale}{}", if is_default { " (default)" } else { "" });
        text += &parts(content);
    }
    text
}

/// Every field of an object on its own lines.
fn parts(content: &Value) -> String {
    let mut text = String::new();
    for (name, value) in content.as_object().into_iter().flatten() {
        let value = match value {
            Value::Null => continue,
            Value::String(text) => text.clone(),
            other => format!("{other:#}"),
        };
        text += &format!("\n  {name}: {}", value.replace('\n', "\n    "));
    }
    text
}

fn preview(result: &Value) -> String {
    let mut text = format!("locale {}", cell(result, "/locale"));
    for missing in items(result, "missing") {
        let fields = texts(&missing["fields"]).join(", ");
        text += &format!("\nmissing: {} (in {fields})", cell(missing, "/variable"));
    }
    for error in items(result, "errors") {
        text += &format!("\nerror: {}; {}", cell(error, "/found"), cell(error, "/allowed"));
    }
    for channel in items(result, "channels") {
        text += &format!("\n\n{}", cell(channel, "/channel"));
        match (channel["bytes"].as_u64(), channel["bytes_max"].as_u64()) {
            (Some(bytes), Some(max)) => text += &format!(", {bytes} of {max} bytes"),
            (Some(bytes), None) => text += &format!(", {bytes} bytes"),
            _ => {}
        }
        if channel["configured"] == false {
            text += ", not configured";
        }
        for error in items(channel, "errors") {
            let (field, found) = (cell(error, "/field"), cell(error, "/found"));
            text += &format!(
                "\n  refused: {field}: found {found}, allowed: {}",
                cell(error, "/allowed")
            );
        }
        text += &parts(&channel["sends"]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn variables_keep_the_words_that_were_typed() {
        let args = TemplateVariableArgs {
            locale: Some("de".to_owned()),
            variables: ["n=91", "price=1.50", "code=007", "tags=[1]", "order.name=A=B", "vip=true"]
                .map(str::to_owned)
                .to_vec(),
            vars: None,
        };
        let variables = json!({
            "n": 91, "price": "1.50", "code": "007", "tags": [1], "order": {"name": "A=B"}, "vip": true,
        });
        let wanted = json!({"locale": "de", "variables": variables});
        assert_eq!(Value::Object(args.fields().unwrap()), wanted);
        for wrong in ["n", "=5", "a.=5"] {
            let variables = vec![wrong.to_owned()];
            assert!(
                TemplateVariableArgs { locale: None, variables, vars: None }.fields().is_err(),
                "{wrong}"
            );
        }
    }
}
