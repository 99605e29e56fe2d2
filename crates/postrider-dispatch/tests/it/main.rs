//! Promises of gate and dispatcher, kept over the reference store and scripted channels.

mod dispatching;
mod gating;
mod scripted;
