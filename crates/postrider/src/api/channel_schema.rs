//! Addresses and contents as OpenAPI describes them, made from what each channel says about its fields.
//! Parses nothing: the intake does.

use std::borrow::Cow;

use postrider_channels::definition::{AddressField, FieldForm};
use postrider_channels::registry;
use serde::Serialize;
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, Schema, SchemaType, Type};
use utoipa::openapi::{OneOfBuilder, Ref, RefOr};
use utoipa::{PartialSchema, ToSchema};

/// Where a message goes.
pub(crate) struct AddressRequest;

impl ToSchema for AddressRequest {
    fn name() -> Cow<'static, str> {
        "NewAddressBody".into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        for (field, _) in address_fields() {
            if let FieldForm::Object { name, fields } = field.form {
                let add = |object: ObjectBuilder, field: &&'static str| {
                    object.property(*field, text()).required(*field)
                };
                let object = fields.iter().fold(ObjectBuilder::new(), add);
                schemas.push((name.to_owned(), object.into()));
            }
        }
    }
}

impl PartialSchema for AddressRequest {
    fn schema() -> RefOr<Schema> {
        let channels: Vec<_> = registry::all().map(|c| quoted(c.kind().name())).collect();
        let about = "Where a message goes. Which fields are needed depends on the channel.";
        let recipient = "The owner of the address. Only in the registry.";
        let address = ObjectBuilder::new()
            .description(Some(about))
            .property(
                "channel",
                text().description(Some(format!("One of {}.", channels.join(", ")))),
            )
            .required("channel")
            .property("recipient", field_schema(FieldForm::Text, recipient));
        let add = |address: ObjectBuilder, (field, channels): (AddressField, Vec<String>)| {
            let about = format!("{}: {}.", channels.join(", "), field.about);
            address.property(field.name, field_schema(field.form, &about))
        };
        address_fields().into_iter().fold(address, add).into()
    }
}

/// The fields that all channels render, and the content for one channel alone, which wins.
#[derive(Debug, Serialize)]
pub(crate) struct ContentRequest;

impl ToSchema for ContentRequest {
    fn name() -> Cow<'static, str> {
        "NewContent".into()
    }
}

impl PartialSchema for ContentRequest {
    fn schema() -> RefOr<Schema> {
        let text = || optional(ObjectBuilder::new(), Type::String);
        let object = || ObjectBuilder::new().schema_type(Type::Object);
        let content = ObjectBuilder::new()
            .description(Some(
                "Common fields, and fields for one channel, which win over the common ones.",
            ))
            .property("title", text())
            .property("body", text())
            .property("url", text())
            .property("data", object());
        registry::all()
            .fold(content, |content, channel| {
                let own = object().description(Some(channel.facts().content_about));
                content.property(channel.kind().name(), own)
            })
            .into()
    }
}

/// The fields of all addresses, each with the channels that have it.
fn address_fields() -> Vec<(AddressField, Vec<String>)> {
    let mut all: Vec<(AddressField, Vec<String>)> = Vec::new();
    for channel in registry::all() {
        for &field in channel.facts().address_fields {
            let name = quoted(channel.kind().name());
            match all.iter_mut().find(|(known, _)| known.name == field.name) {
                Some((_, channels)) => channels.push(name),
                None => all.push((field, vec![name])),
            }
        }
    }
    all
}

fn field_schema(form: FieldForm, about: &str) -> Schema {
    let about = Some(about);
    match form {
        FieldForm::Text => optional(ObjectBuilder::new(), Type::String).description(about).into(),
        FieldForm::TextList => {
            let types = SchemaType::Array(vec![Type::Array, Type::Null]);
            ArrayBuilder::new().schema_type(types).items(text()).description(about).into()
        }
        FieldForm::TextMap => optional(ObjectBuilder::new(), Type::Object)
            .additional_properties(Some(Schema::from(text())))
            .property_names(Some(text()))
            .description(about)
            .into(),
        FieldForm::Object { name, .. } => {
            let null = ObjectBuilder::new().schema_type(Type::Null);
            let object = Ref::from_schema_name(name);
            OneOfBuilder::new().item(object).item(null).description(about).into()
        }
    }
}

fn text() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

fn optional(object: ObjectBuilder, of: Type) -> ObjectBuilder {
    object.schema_type(SchemaType::Array(vec![of, Type::Null]))
}

fn quoted(name: &str) -> String {
    format!("`{name}`")
}
