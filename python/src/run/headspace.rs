//! A headspace as Python asks for it: steps are calls of Python code.

use super::{Kept, NoBatch, Run, RunState, locked};
use crate::batch::Batch;
use crate::errors;
use crate::opening;
use ddlp_host::Headspace;
use ddlp_report::describe_headspace;
use pyo3::prelude::*;
use std::cell::RefCell;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

impl Run {
    /// Measures with a step of training. `convert` makes the consumer's batch of a native one. Returns JSON: the
    /// figures, and what they say in words as `text`.
    pub(super) fn measure(
        &self,
        py: Python<'_>,
        step: &Py<PyAny>,
        convert: &Py<PyAny>,
        time: Duration,
    ) -> PyResult<String> {
        if self.device.is_some() {
            return Err(errors::configuration(
                "headspace takes batches from host memory: measure a loader without `device`, with a step that copies \
                 its batch to the GPU"
                    .into(),
            ));
        }
        let _turn = self.turn(py)?;
        let measured = py.detach(|| self.run_steps(step, convert, time));
        let headspace = measured.map_err(|why| self.without_batch(why))?;
        let mut figures = serde_json::to_value(&headspace).expect("figures are plain data");
        figures["text"] = describe_headspace(&headspace).into();
        Ok(figures.to_string())
    }

    fn run_steps(&self, step: &Py<PyAny>, convert: &Py<PyAny>, time: Duration) -> Result<Headspace, NoBatch> {
        let mut state = self.lock_state().map_err(NoBatch::Interrupted)?;
        let RunState::Open(loader) = &mut *state else { return Err(NoBatch::Closed) };
        let (ended, mut kept) = (RefCell::new(None), Kept::default());
        // What a step asks of the loader is answered as of the position to which the loader goes back.
        *locked(&self.measured_from) = Some(loader.state());
        *locked(&self.waits) = Some(thread::current().id());
        let train = |batch: &ddlp_host::Batch| {
            let trained = Python::attach(|py| -> PyResult<()> {
                let batch = convert.call1(py, (Batch::new(py, batch, None)?,))?;
                step.call1(py, (batch,))?;
                py.check_signals()
            });
            *ended.borrow_mut() = trained.err().map(NoBatch::Interrupted);
            ended.borrow().is_none()
        };
        let go_on = |waiting| {
            *ended.borrow_mut() = Python::attach(|py| self.look(py, waiting, &mut kept)).err();
            ended.borrow().is_none()
        };
        let measured = loader.headspace(time, train, go_on);
        *locked(&self.waits) = None;
        *locked(&self.measured_from) = None;
        let closing = if self.closes.load(Ordering::Acquire) { self.closing(&mut state) } else { None };
        drop(state);
        if let Some(closing) = closing {
            Python::attach(|py| opening::elsewhere(py, || closing.end())).map_err(NoBatch::Interrupted)?;
        }
        match (measured, ended.into_inner()) {
            (_, Some(ended)) => Err(ended),
            (Ok(Some(headspace)), None) => Ok(headspace),
            (Ok(None), None) => Err(NoBatch::Closed),
            (Err(error), None) => Err(NoBatch::Failed(error)),
        }
    }

    /// Returns the exception for a wait that ended without a batch.
    pub(super) fn without_batch(&self, why: NoBatch) -> PyErr {
        match why {
            NoBatch::Interrupted(raised) => raised,
            NoBatch::Kept { waited } => self.kept(waited),
            NoBatch::Superseded => errors::usage(
                "this iteration is over: another iteration, set_epoch or load_state_dict came after it".into(),
            ),
            NoBatch::Failed(error) => self.exception(&error),
            NoBatch::HasFailed => errors::usage(
                "the run has ended with an error: go on after the last batch that you got, by \
                 loader.load_state_dict(loader.state_dict()), or make a new loader"
                    .into(),
            ),
            NoBatch::Closed => errors::usage("the loader is closed: make a new one".into()),
        }
    }
}
