//! Fake providers that check what the real ones check, and fail on request.
