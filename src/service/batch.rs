//! Runs batches and prints their responses (protocol §8.3, §8.4).

use std::iter;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;
use uuid::Uuid;

use super::access::{authorize, authorize_change_set};
use super::answer::{Answer, CONTENT_TYPE};
use super::fault_rules::{FaultRules, FaultSubject, Injection};
use super::operations::{self, Printer, print_write};
use super::telemetry::Observed;
use crate::error::{Code, Error, Result};
use crate::operator::indexes::IndexCatalog;
use crate::protocol::auth::Identity;
use crate::protocol::codec::atom::write::Style;
use crate::protocol::codec::failure::ErrorContext;
use crate::protocol::codec::multipart::{self, InnerAnswer};
use crate::protocol::model::version::etag;
use crate::protocol::model::{TableName, Ticks};
use crate::protocol::plan::batch::{Batch, BatchPart, FailedPart, Printing};
use crate::protocol::plan::{self, ChangeSet, Operation, Plan, WriteKind, Written};
use crate::protocol::request::OperationLabel;
use crate::protocol::request::format;
use crate::protocol::request::head::{ApiVersion, WITHOUT_ATOM};
use crate::protocol::request::{Representation, Target};
use crate::store::{Failure, Fault, Store};

/// The data service versions of parts in a batch response.
const VERSION_3: &str = "3.0;";
const VERSION_1: &str = "1.0;";
/// How long deleted tables are kept, in ticks. The value has no effect, because batches do not delete tables.
const KEEP_DELETED: i64 = 0;

/// The facts about a change set request on which its response depends.
struct AnswerPlan {
    /// How to print the responses to the operations that could be parsed.
    printings: Vec<Printing>,
    /// The operation that could not be parsed, if any.
    failure: Option<FailedPart>,
    /// The change sets after the first, which Azure refuses.
    refused_sets: Vec<FailedPart>,
}

/// Runs a batch in the context of its request.
pub(crate) struct BatchRunner<'a> {
    pub store: &'a Store,
    pub indexes: Arc<IndexCatalog>,
    pub target: &'a Target,
    pub identity: &'a Identity,
    pub version: ApiVersion,
    pub error_context: ErrorContext<'a>,
    pub observed: &'a Observed,
    /// The faults that tests inject, if they apply to this client.
    pub fault_rules: Option<&'a FaultRules>,
    /// Maximum time to read a page.
    pub page_time: Duration,
    pub now: Ticks,
}

impl BatchRunner<'_> {
    /// Runs a batch. The status is 202; the body contains the results, including errors.
    ///
    /// # Errors
    /// The errors of the whole batch, which have no index. [`Code::ServerBusy`] means that no part was begun.
    /// Clients retry a batch with this error, but do not look for the error inside the body.
    pub(crate) async fn run(&self, batch: Batch) -> Result<Answer> {
        match batch {
            Batch::Query(part) => match *part {
                Ok(BatchPart { operation, printing, .. }) => {
                    let answer = self.run_query(operation, &printing).await;
                    self.print_query(answer, &printing)
                }
                Err(failed) => {
                    let inner = self.print_failed_part(&failed);
                    Ok(wrap_in_batch(Some(failed.error.code), |boundary| {
                        multipart::query_response(boundary, &inner)
                    }))
                }
            },
            Batch::ChangeSet { parts, failure, others } => {
                let (plans, printings): (Vec<_>, Vec<_>) =
                    parts.into_iter().map(|part| (part.operation.plan, part.printing)).unzip();
                let answer_plan = AnswerPlan { printings, failure, refused_sets: others };
                match self.plan_change_set(plans, &answer_plan) {
                    Err(error) => Ok(self.refuse_change_set(error, &answer_plan)),
                    Ok(None) => Ok(self.print_change_set(None, &[], &answer_plan)),
                    Ok(Some(set)) => match self.transact_with_faults(&set, &answer_plan).await {
                        Err(error) if error.index.is_some() => {
                            Ok(self.refuse_change_set(error, &answer_plan))
                        }
                        answer => answer,
                    },
                }
            }
        }
    }

    async fn run_query(&self, operation: Operation, printing: &Printing) -> Result<Answer> {
        let at_part = |error: Error| error.at(0);
        let mut plan =
            authorize(self.identity, self.target, operation.plan.map_err(at_part)?).map_err(at_part)?;
        plan.limit_page_time(self.page_time);
        self.indexes.apply_to(&self.target.account, &mut plan).map_err(at_part)?;
        let injection = self.next_injection(plan.table(), [operation.label]);
        if let Some(injection) = &injection {
            injection.shorten_page(&mut plan);
        }
        let answer = async || {
            let printer = self.printer(printing);
            operations::run(self.store, &plan, KEEP_DELETED, printer).await.map_err(attribute_query_error)
        };
        match injection {
            None => answer().await,
            Some(injection) => Box::pin(injection.run(answer())).await,
        }
    }

    /// Returns the faults to inject into the batch and its operations.
    fn next_injection(
        &self,
        table: Option<&TableName>,
        operations: impl IntoIterator<Item = OperationLabel>,
    ) -> Option<Injection> {
        let batch = FaultSubject { operation: self.observed.label(), table, index: None };
        let operations = (0..).zip(operations);
        let operations =
            operations.map(|(index, operation)| FaultSubject { operation, table, index: Some(index) });
        self.fault_rules?.next_injection(iter::once(batch).chain(operations))
    }

    fn print_query(&self, answer: Result<Answer>, printing: &Printing) -> Result<Answer> {
        let (refusal, inner) = match answer {
            Ok(answer) => (None, answer.into_inner(VERSION_3, printing.content_id.as_deref())),
            Err(error) if error.index.is_none() => return Err(error),
            Err(error) => (Some(error.code), self.print_refusal(&error, printing)),
        };
        Ok(wrap_in_batch(refusal, |boundary| multipart::query_response(boundary, &inner)))
    }

    /// Plans a change set, and checks that it is permitted and that its response can be printed.
    fn plan_change_set(
        &self,
        plans: Vec<Result<Plan>>,
        answer_plan: &AnswerPlan,
    ) -> Result<Option<ChangeSet>> {
        let Some(set) = plan::change_set(plans, answer_plan.failure.as_ref().map(|failed| &failed.error))?
        else {
            return Ok(None);
        };
        let set = authorize_change_set(self.identity, self.target, set)?;
        // A response that cannot be printed must be refused before the commit.
        for (index, (write, printing)) in set.writes.iter().zip(&answer_plan.printings).enumerate() {
            if write.needs_body(printing.prefer) {
                printing.format.for_body().map_err(|code| Error::from(code).at(index))?;
            }
        }
        Ok(Some(set))
    }

    async fn transact_with_faults(&self, set: &ChangeSet, answer_plan: &AnswerPlan) -> Result<Answer> {
        match self.next_injection(Some(&set.table), set.writes.iter().map(|write| write.kind.label())) {
            None => self.transact(set, answer_plan).await,
            Some(injection) => Box::pin(injection.run(self.transact(set, answer_plan))).await,
        }
    }

    async fn transact(&self, set: &ChangeSet, answer_plan: &AnswerPlan) -> Result<Answer> {
        // The new versions are known in advance unless clocks differ, so the response is printed while the
        // database works. `join` sends the request to the database first.
        let expected: Vec<Written> = set.writes.iter().map(|write| write.expected_result(self.now)).collect();
        let writing = self.store.transact(set.table.in_account(&self.target.account), &set.writes, self.now);
        let (written, early) = join(writing, async { self.print_writes(set, answer_plan, &expected) }).await;
        let written = written.map_err(attribute_failure)?;
        if written == expected { early } else { self.print_writes(set, answer_plan, &written) }
    }

    /// Prints the response to a completed change set. `plan_change_set` has checked that this is possible.
    fn print_writes(&self, set: &ChangeSet, answer_plan: &AnswerPlan, written: &[Written]) -> Result<Answer> {
        let mut answers = Vec::with_capacity(answer_plan.printings.len());
        let writes = set.spellings.iter().zip(&*set.writes);
        // Most writes of a change set get the same version.
        let mut version: Option<(Ticks, String)> = None;
        for (((table, write), printing), written) in writes.zip(&answer_plan.printings).zip(written) {
            version = match (written.modified, version) {
                (Some(modified), Some(same)) if same.0 == modified => Some(same),
                (modified, _) => modified.map(|modified| (modified, etag(modified))),
            };
            let answer = print_write(table, write, version.clone(), &self.printer(printing))?;
            // As recorded, an update with a preference has the version of an insert.
            let is_3 = write.kind == WriteKind::Insert || printing.prefer.is_some();
            let version = if is_3 { VERSION_3 } else { VERSION_1 };
            answers.push(answer.into_inner(version, printing.content_id.as_deref()));
        }
        Ok(self.print_change_set(None, &answers, answer_plan))
    }

    /// Prints the response to a change set that failed: the response to the failed operation.
    fn refuse_change_set(&self, error: Error, answer_plan: &AnswerPlan) -> Answer {
        let error = adapt_to_version(error, self.version);
        let refusal = Some(error.code);
        let AnswerPlan { printings, failure, .. } = answer_plan;
        let inner = match (error.index.and_then(|index| printings.get(index)), failure) {
            // The operation that could not be parsed is refused.
            (None, Some(failed)) => {
                let error = with_wire_index(error, printings.len() + 1);
                Some(self.print_failed_part(&FailedPart { error, printing: failed.printing.clone() }))
            }
            // A parsed operation failed. If the error has no index, the first operation counts as failed.
            (printing, failure) => {
                let count = printings.len() + usize::from(failure.is_some());
                let printing = printing.or(printings.first());
                printing.map(|printing| self.print_refusal(&with_wire_index(error, count), printing))
            }
        };
        self.print_change_set(refusal, inner.as_slice(), answer_plan)
    }

    /// Prints the responses to a change set, and the refusals of the change sets after it.
    fn print_change_set(
        &self,
        refusal: Option<Code>,
        answers: &[InnerAnswer],
        answer_plan: &AnswerPlan,
    ) -> Answer {
        let named = |answers| (format!("changesetresponse_{}", Uuid::new_v4()), answers);
        let others: Vec<InnerAnswer> =
            answer_plan.refused_sets.iter().map(|other| self.print_failed_part(other)).collect();
        let refusal = refusal.or(answer_plan.refused_sets.first().map(|other| other.error.code));
        let sets: Vec<_> = iter::once(answers).chain(others.chunks(1)).map(named).collect();
        wrap_in_batch(refusal, |boundary| multipart::change_sets_response(boundary, &sets))
    }

    /// Prints the response to a part that could not be parsed.
    fn print_failed_part(&self, failed: &FailedPart) -> InnerAnswer {
        match &failed.printing {
            Some(printing) => self.print_refusal(&failed.error, printing),
            None => {
                self.observed.explain_error(&failed.error);
                let style = format::atom(self.version).unwrap_or(Style::Modern);
                Answer::unreadable_part(&failed.error, style, &self.error_context)
            }
        }
    }

    fn printer(&self, printing: &Printing) -> Printer<'_> {
        let (format, prefer) = (printing.format, printing.prefer);
        Printer { target: self.target, format, prefer, now: self.now }
    }

    fn print_refusal(&self, error: &Error, printing: &Printing) -> InnerAnswer {
        self.observed.explain_error(error);
        let representation = printing.format.for_errors();
        let version = match representation {
            Representation::Atom(style) => style.data_service_version(),
            Representation::Json(_) => VERSION_3,
        };
        Answer::refusal(error, representation, printing.prefer, &self.error_context)
            .into_inner(version, printing.content_id.as_deref())
    }
}

/// Assigns the failure of a change set to an operation, by default to the first. A change set that was not
/// begun has no failed operation.
fn attribute_failure(failure: Failure) -> Error {
    if failure == Failure::Fault(Fault::NotBegun) {
        return Code::ServerBusy.into();
    }
    let error = Error::from(failure);
    Error { index: error.index.or(Some(0)), ..error }
}

/// Assigns the failure of a query to its part. A busy server fails the whole batch, because a query can
/// always be retried.
fn attribute_query_error(error: Error) -> Error {
    if error.code == Code::ServerBusy { error } else { error.at(0) }
}

/// Adapts an error to the version. As recorded, a duplicate row had no separate code until some version after
/// 2015-04-05. This server uses the first version without Atom.
fn adapt_to_version(error: Error, version: ApiVersion) -> Error {
    match error.code {
        Code::InvalidDuplicateRow if !version.at_least(WITHOUT_ATOM) => {
            Error { code: Code::InvalidInput, ..error }
        }
        _ => error,
    }
}

/// Adjusts the index of an error to the one that Azure prints. A change set with one operation reports some errors
/// without an index; all other errors have one (protocol §8.4).
fn with_wire_index(error: Error, operations: usize) -> Error {
    if operations == 1 && error.code.is_unnumbered_alone() {
        return Error { index: None, ..error };
    }
    match error.code {
        // A missing table concerns all operations.
        Code::TableNotFound => error.at(0),
        _ => error,
    }
}

/// Returns the response to a batch. `print` writes its body with the given boundary.
fn wrap_in_batch(refusal: Option<Code>, print: impl FnOnce(&str) -> Vec<u8>) -> Answer {
    let boundary = format!("batchresponse_{}", Uuid::new_v4());
    let body = print(&boundary);
    let answer = Answer { refusal, ..Answer::table_empty(202) };
    answer.with(CONTENT_TYPE, format!("multipart/mixed; boundary={boundary}")).with_body(body)
}
