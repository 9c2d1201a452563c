//! ddlp-tests
