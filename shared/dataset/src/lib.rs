//! ddlp-dataset
