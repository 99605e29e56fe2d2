//! What a status and code of a given provider mean, as tables.
