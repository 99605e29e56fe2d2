//! Encryption at rest.

use postrider_channels::accounts::SecretRef;
use postrider_channels::section;
use postrider_store::sealed::MasterKey;

section! {
    /// Encryption at rest: docs/encryption.md.
    EncryptionSection as "encryption" {
        /// The master key, 32 random bytes in hexadecimal or base64: env:NAME, file:PATH or command:PROGRAM ARGUMENTS,
        /// never the key itself. With it, bodies, addresses, recipients and our own keys are encrypted in the store.
        key: Option<SecretRef> = None,
        /// Master keys that still open what they wrapped, while the master key is rotated.
        previous_keys: Vec<SecretRef> = Vec::new(),
    }
}

impl EncryptionSection {
    /// Reads the master keys, the one to use first; none if encryption is off. Blocks.
    pub(crate) fn masters(&self) -> anyhow::Result<Vec<MasterKey>> {
        let Some(key) = &self.key else {
            anyhow::ensure!(
                self.previous_keys.is_empty(),
                "encryption.previous_keys is given without encryption.key"
            );
            return Ok(Vec::new());
        };
        let read = |(field, secret): (String, &SecretRef)| {
            let text = secret.read().map_err(|why| anyhow::anyhow!("{field}: {why}"))?;
            MasterKey::parse(&text).map_err(|why| anyhow::anyhow!("{field}: {secret}: {why}"))
        };
        let previous = self.previous_keys.iter().enumerate();
        let previous = previous.map(|(n, key)| (format!("encryption.previous_keys[{n}]"), key));
        std::iter::once(("encryption.key".to_owned(), key)).chain(previous).map(read).collect()
    }
}
