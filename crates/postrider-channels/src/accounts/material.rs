//! A value parsed from a secret (a key, a certificate, a password). It is cached, and read again after the
//! provider has refused it.

use std::sync::{Arc, PoisonError, RwLock};

use aws_lc_rs::digest::{self, SHA256};

use super::SecretRef;

pub struct Material<T> {
    reference: SecretRef,
    /// The error says what is wrong without repeating the secret.
    read: fn(&str) -> Result<T, String>,
    kept: RwLock<Option<CachedMaterial<T>>>,
    reading: tokio::sync::Mutex<()>,
}

struct CachedMaterial<T> {
    value: Arc<T>,
    /// Shows whether the secret has changed.
    digest: [u8; 32],
}

impl Material<String> {
    /// The secret itself, for passwords and API keys.
    pub fn text(reference: &SecretRef) -> Self {
        Self::new(reference.clone(), |text| Ok(text.to_owned()))
    }
}

impl<T: Send + Sync + 'static> Material<T> {
    pub fn new(reference: SecretRef, read: fn(&str) -> Result<T, String>) -> Self {
        Self { reference, read, kept: RwLock::new(None), reading: tokio::sync::Mutex::new(()) }
    }

    pub fn reference(&self) -> &SecretRef {
        &self.reference
    }

    /// The cached value, if it was read before.
    pub fn kept(&self) -> Option<Arc<T>> {
        self.kept.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(|k| k.value.clone())
    }

    /// The value. The first caller reads it, on a thread for blocking work.
    pub async fn get(&self) -> Result<Arc<T>, String> {
        if let Some(kept) = self.kept() {
            return Ok(kept);
        }
        let _one_at_a_time = self.reading.lock().await;
        if let Some(kept) = self.kept() {
            return Ok(kept);
        }
        let fresh = self.read_now().await?;
        let value = fresh.value.clone();
        *self.kept.write().unwrap_or_else(PoisonError::into_inner) = Some(fresh);
        Ok(value)
    }

    /// Reads the secret again. Returns the value, and whether it replaced another one. If it cannot be read, the
    /// cached value stays.
    pub async fn refresh(&self) -> Result<(Arc<T>, bool), String> {
        let _one_at_a_time = self.reading.lock().await;
        let fresh = self.read_now().await?;
        let mut kept = self.kept.write().unwrap_or_else(PoisonError::into_inner);
        match kept.as_ref() {
            Some(known) if known.digest == fresh.digest => Ok((known.value.clone(), false)),
            known => {
                let (replaced, value) = (known.is_some(), fresh.value.clone());
                *kept = Some(fresh);
                Ok((value, replaced))
            }
        }
    }

    /// Clears the cache, because the provider refused the secret.
    pub fn forget(&self) {
        *self.kept.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    async fn read_now(&self) -> Result<CachedMaterial<T>, String> {
        let (reference, read) = (self.reference.clone(), self.read);
        let reading = tokio::task::spawn_blocking(move || {
            let text = reference.read()?;
            let value = read(&text).map_err(|why| format!("{reference}: {why}"))?;
            let mut sum = [0; 32];
            sum.copy_from_slice(digest::digest(&SHA256, text.as_bytes()).as_ref());
            Ok(CachedMaterial { value: Arc::new(value), digest: sum })
        });
        reading.await.map_err(|e| e.to_string())?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> Result<u32, String> {
        text.parse().map_err(|_| "not a number".to_owned())
    }

    fn material(path: &std::path::Path) -> Material<u32> {
        Material::new(SecretRef::parse(&format!("file:{}", path.display())).unwrap(), number)
    }

    #[tokio::test]
    async fn a_secret_is_read_once_and_again_when_it_was_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let material = material(file.path());
        assert!(material.get().await.unwrap_err().ends_with("is empty"));
        std::fs::write(file.path(), "1").unwrap();
        assert_eq!(*material.get().await.unwrap(), 1);
        std::fs::write(file.path(), "2").unwrap();
        assert_eq!(*material.get().await.unwrap(), 1);
        material.forget();
        assert_eq!(*material.get().await.unwrap(), 2);
        std::fs::write(file.path(), "hunter2").unwrap();
        material.forget();
        let error = material.get().await.unwrap_err();
        assert!(error.ends_with("not a number") && !error.contains("hunter2"), "{error}");
    }

    #[tokio::test]
    async fn a_look_takes_another_secret_over_and_keeps_the_old_one_where_there_is_none() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "1").unwrap();
        let material = material(file.path());
        let look = async || material.refresh().await.map(|(value, replaced)| (*value, replaced));
        assert_eq!(look().await.unwrap(), (1, false), "the first is no other one");
        assert_eq!(look().await.unwrap(), (1, false));
        std::fs::write(file.path(), "2").unwrap();
        assert_eq!(look().await.unwrap(), (2, true));
        std::fs::write(file.path(), "").unwrap();
        assert!(look().await.is_err());
        assert_eq!(*material.get().await.unwrap(), 2);
    }
}
