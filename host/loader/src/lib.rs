//! ddlp-host
