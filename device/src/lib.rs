//! ddlp-device
