//! Batches: running them and printing their answers (protocol §8.3, §8.4).

use uuid::Uuid;

use super::answer::{Answer, CONTENT_TYPE};
use super::execute::{execute, needs_body};
use super::print::Printer;
use crate::codec::failure::Occasion;
use crate::codec::multipart::{self, InnerAnswer};
use crate::error::{Code, Error, Result};
use crate::model::Ticks;
use crate::plan::{self, Plan, WriteKind};
use crate::request::Target;
use crate::request::batch::{Batch, BatchPart, Printing};
use crate::store::Backend;

/// Data service versions as the parts of a batch answer them.
const VERSION_3: &str = "3.0;";
const VERSION_1: &str = "1.0;";

/// What running a batch takes.
pub struct Run<'a, S> {
    pub store: &'a S,
    pub target: &'a Target,
    pub occasion: Occasion<'a>,
    pub now: Ticks,
}

impl<S: Backend> Run<'_, S> {
    /// Runs a batch. Every outcome, refusals included, is answered with 202.
    pub async fn batch(&self, operation: &crate::request::Operation, batch: &Batch) -> Answer {
        match batch {
            Batch::Query(part) => {
                let printing = match &**part {
                    Ok(part) => &part.printing,
                    Err(failed) => &failed.printing,
                };
                let answer = match (plan::plan(operation), &**part) {
                    (Ok(plan), Ok(part)) => self.query(&plan, part).await,
                    (Err(error), _) => Err(error),
                    (Ok(_), Err(failed)) => Err(failed.error.clone()),
                };
                let inner = match answer {
                    Ok(answer) => answer.into_inner(VERSION_3, printing.content_id.as_deref()),
                    Err(error) => self.refusal(&error.at(0), printing),
                };
                accepted(|boundary| multipart::query_response(boundary, &inner))
            }
            Batch::ChangeSet { parts, failure } => {
                let answers = match self.change_set(operation, parts).await {
                    Ok(answers) => answers,
                    Err(error) => {
                        let count = parts.len() + usize::from(failure.is_some());
                        let index = error.index.unwrap_or(0);
                        let failed = failure.as_ref().map(|failed| &failed.printing);
                        let printing = parts.get(index).map(|part| &part.printing).or(failed);
                        printing.map(|p| self.refusal(&prefixed(error, count), p)).into_iter().collect()
                    }
                };
                let change_set = format!("changesetresponse_{}", Uuid::new_v4());
                accepted(|boundary| multipart::change_set_response(boundary, &change_set, &answers))
            }
        }
    }

    async fn query(&self, plan: &Plan, part: &BatchPart) -> Result<Answer> {
        execute(self.store, plan, &part.operation, self.printer(&part.printing), self.now).await
    }

    async fn change_set(
        &self,
        operation: &crate::request::Operation,
        parts: &[BatchPart],
    ) -> Result<Vec<InnerAnswer>> {
        let Plan::Transact { table, writes } = plan::plan(operation)? else { return Ok(Vec::new()) };
        // An answer that cannot be printed must be found out before the commit.
        for (index, part) in parts.iter().enumerate() {
            if needs_body(&part.operation, self.printer(&part.printing)) {
                part.printing.format.for_body().map_err(|code| Error::from(code).at(index))?;
            }
        }
        let written = self.store.transact(&self.target.account, &table, &writes, self.now).await.map_err(
            |failure| {
                let error = Error::from(failure);
                Error { index: error.index.or(Some(0)), ..error }
            },
        )?;
        let mut answers = Vec::with_capacity(parts.len());
        for ((part, write), written) in parts.iter().zip(&writes).zip(written) {
            let name = match &part.operation {
                crate::request::Operation::Write(entity) => entity.table.as_str(),
                _ => table.as_given(),
            };
            let answer = self.printer(&part.printing).written(name, write, written)?;
            let version = if write.kind == WriteKind::Insert { VERSION_3 } else { VERSION_1 };
            answers.push(answer.into_inner(version, part.printing.content_id.as_deref()));
        }
        Ok(answers)
    }

    fn printer(&self, printing: &Printing) -> Printer<'_> {
        Printer { target: self.target, format: printing.format, prefer: printing.prefer }
    }

    fn refusal(&self, error: &Error, printing: &Printing) -> InnerAnswer {
        Answer::refusal(error, printing.format.for_errors(), printing.prefer, &self.occasion)
            .into_inner(VERSION_3, printing.content_id.as_deref())
    }
}

/// A change set of one operation reports what the stored state says without an
/// index; everything else has one (protocol §8.4).
fn prefixed(error: Error, operations: usize) -> Error {
    if operations == 1 && error.code.is_storage_outcome() {
        return Error { index: None, ..error };
    }
    match error.code {
        // The table is missing for all of them alike.
        Code::TableNotFound => error.at(0),
        _ => error,
    }
}

fn accepted(print: impl FnOnce(&str) -> Vec<u8>) -> Answer {
    let boundary = format!("batchresponse_{}", Uuid::new_v4());
    let body = print(&boundary);
    Answer::empty(202).with(CONTENT_TYPE, format!("multipart/mixed; boundary={boundary}")).with_body(body)
}
