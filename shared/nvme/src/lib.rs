//! ddlp-nvme
