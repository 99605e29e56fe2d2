//! Addresses and contents as OpenAPI describes them, made from what each channel says about its fields.
//! Parses nothing: the intake does.

use std::borrow::Cow;

use postrider_channels::definition::{ChannelFacts, FieldForm};
use postrider_channels::registry;
use postrider_core::ChannelKind;
use serde::Serialize;
use utoipa::openapi::schema::{
    ArrayBuilder, Discriminator, ObjectBuilder, Schema, SchemaType, Type,
};
use utoipa::openapi::{OneOfBuilder, Ref, RefOr};
use utoipa::{PartialSchema, ToSchema};

/// Where a message goes: one form per channel, told apart by `channel`.
pub(crate) struct AddressRequest;

impl ToSchema for AddressRequest {
    fn name() -> Cow<'static, str> {
        "NewAddressBody".into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        for channel in registry::all() {
            let facts = channel.facts();
            schemas.push((form_name(channel.kind()), channel_address(facts).into()));
            for field in facts.address_fields {
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
}

impl PartialSchema for AddressRequest {
    fn schema() -> RefOr<Schema> {
        let kinds = || registry::all().map(|channel| channel.kind());
        let target = |kind| Ref::from_schema_name(form_name(kind));
        let mapping = kinds().map(|kind| (kind.name().to_owned(), target(kind).ref_location));
        let one_of = kinds().fold(OneOfBuilder::new(), |one_of, kind| one_of.item(target(kind)));
        one_of
            .description(Some("Where a message goes. `channel` says which fields it has."))
            .discriminator(Some(Discriminator::with_mapping("channel", mapping)))
            .into()
    }
}

/// `webhook` has the form `WebhookAddress`.
fn form_name(kind: ChannelKind) -> String {
    let mut letters = kind.name().chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).chain("Address".chars()).collect()
}

fn channel_address(facts: &ChannelFacts) -> ObjectBuilder {
    let recipient = "The owner of the address. Only in the registry.";
    let address = ObjectBuilder::new()
        .property("channel", text().enum_values(Some([facts.kind.name()])))
        .required("channel")
        .property("recipient", field_schema(FieldForm::Text, false, recipient));
    facts.address_fields.iter().fold(address, |address, field| {
        let mut about = format!("{}.", field.about);
        if let Some(first) = about.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        let schema = field_schema(field.form, field.required, &about);
        let address = address.property(field.name, schema);
        if field.required { address.required(field.name) } else { address }
    })
}

/// Exactly one of `address`, `recipient` and `recipients`.
#[derive(Debug, Serialize)]
pub(crate) struct DestinationRequest;

impl ToSchema for DestinationRequest {
    fn name() -> Cow<'static, str> {
        "To".into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((REFERENCE.to_owned(), address_or_id().into()));
        AddressRequest::schemas(schemas);
    }
}

/// An address inside a message.
const REFERENCE: &str = "AddressOrId";

impl PartialSchema for DestinationRequest {
    fn schema() -> RefOr<Schema> {
        let reference = || Ref::from_schema_name(REFERENCE);
        let fallback = ArrayBuilder::new().items(reference()).max_items(Some(4)).description(Some(
            "Other addresses, used one after the other while a provider's breaker is open. Needs a class with \
             `when_open` = `fall_back`.",
        ));
        let address = ObjectBuilder::new()
            .title(Some("an address"))
            .property("address", reference())
            .required("address")
            .property("fallback", fallback);
        let one = text().description(Some("All active addresses registered under this name."));
        let recipient = ObjectBuilder::new()
            .title(Some("a recipient"))
            .property("recipient", one)
            .required("recipient");
        let recipients = ObjectBuilder::new()
            .title(Some("several recipients"))
            .property("recipients", ArrayBuilder::new().items(text()))
            .required("recipients");
        OneOfBuilder::new()
            .item(address)
            .item(recipient)
            .item(recipients)
            .description(Some("Exactly one of `address`, `recipient` and `recipients`."))
            .into()
    }
}

fn address_or_id() -> OneOfBuilder {
    let id = text().description(Some("The id of a registered address, `adr_…`."));
    OneOfBuilder::new().item(Ref::from_schema_name("NewAddressBody")).item(id)
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

fn field_schema(form: FieldForm, required: bool, about: &str) -> Schema {
    let about = Some(about);
    let of = |kind: Type| match required {
        true => SchemaType::Type(kind),
        false => SchemaType::Array(vec![kind, Type::Null]),
    };
    match form {
        FieldForm::Text => {
            ObjectBuilder::new().schema_type(of(Type::String)).description(about).into()
        }
        FieldForm::TextList => {
            ArrayBuilder::new().schema_type(of(Type::Array)).items(text()).description(about).into()
        }
        FieldForm::TextMap => ObjectBuilder::new()
            .schema_type(of(Type::Object))
            .additional_properties(Some(Schema::from(text())))
            .property_names(Some(text()))
            .description(about)
            .into(),
        FieldForm::Object { name, .. } => {
            let object = OneOfBuilder::new().item(Ref::from_schema_name(name)).description(about);
            let null = || ObjectBuilder::new().schema_type(Type::Null);
            if required { object.into() } else { object.item(null()).into() }
        }
    }
}

fn text() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

fn optional(object: ObjectBuilder, of: Type) -> ObjectBuilder {
    object.schema_type(SchemaType::Array(vec![of, Type::Null]))
}
