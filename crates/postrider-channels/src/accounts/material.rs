//! What is made from a secret (a key, a certificate, a password), kept in memory and read anew when
//! the provider has refused it.

use std::sync::{Arc, PoisonError, RwLock};

use super::SecretRef;

pub struct Material<T> {
    reference: SecretRef,
    /// The error says what is wrong without repeating the secret.
    read: fn(&str) -> Result<T, String>,
    kept: RwLock<Option<Arc<T>>>,
    reading: tokio::sync::Mutex<()>,
}

impl<T: Send + Sync + 'static> Material<T> {
    pub fn new(reference: SecretRef, read: fn(&str) -> Result<T, String>) -> Self {
        Self { reference, read, kept: RwLock::new(None), reading: tokio::sync::Mutex::new(()) }
    }

    /// What is kept, if it was read before.
    pub fn kept(&self) -> Option<Arc<T>> {
        self.kept.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The material; read once, by the first who asks, off the threads that others need.
    pub async fn get(&self) -> Result<Arc<T>, String> {
        if let Some(kept) = self.kept() {
            return Ok(kept);
        }
        let _one_at_a_time = self.reading.lock().await;
        if let Some(kept) = self.kept() {
            return Ok(kept);
        }
        let (reference, read) = (self.reference.clone(), self.read);
        let made = tokio::task::spawn_blocking(move || {
            let text = reference.read()?;
            read(&text).map_err(|why| format!("{reference}: {why}"))
        });
        let made = Arc::new(made.await.map_err(|e| e.to_string())??);
        *self.kept.write().unwrap_or_else(PoisonError::into_inner) = Some(made.clone());
        Ok(made)
    }

    /// The provider refused it: whoever asks next reads it anew.
    pub fn forget(&self) {
        *self.kept.write().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_secret_is_read_once_and_again_when_it_was_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let reference = SecretRef::parse(&format!("file:{}", file.path().display())).unwrap();
        let number = |text: &str| text.parse::<u32>().map_err(|_| "not a number".to_owned());
        let material = Material::new(reference, number);
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
}
