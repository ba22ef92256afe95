//! atoll-e2e
