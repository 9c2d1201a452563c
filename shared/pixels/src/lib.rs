//! ddlp-pixels
