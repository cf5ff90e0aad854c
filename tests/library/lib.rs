//! Tests of symmem; nothing else is here.
