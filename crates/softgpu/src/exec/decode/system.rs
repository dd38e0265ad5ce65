//! Calls of functions that the system brings.

use super::body::Builder;
use super::error::{Decoded, Refusal};
use crate::device_runtime;
use crate::exec::op::{Op, SystemCall, SystemFunction};
use crate::system::SystemUse;
use detshare_ptx::ast::Operand;

/// What NVVM replaces before there is PTX. It cannot be run.
const REFLECT: &str = "__nvvm_reflect";

impl Builder<'_> {
    /// A call of a function that no module defines.
    pub(super) fn system_call(&mut self, callee: &str, results: &[Operand], arguments: &[Operand]) -> Decoded<Op> {
        let Some((function, argument_count, result_count)) = SystemFunction::find(callee) else {
            if callee == REFLECT {
                return Err(Refusal::Unsupported);
            }
            if device_runtime::lacks(callee) {
                return Err(Refusal::NotSupported("a function of the device runtime that is not there"));
            }
            return Err(Refusal::Unresolved(callee.to_string()));
        };
        if arguments.len() != argument_count || results.len() > result_count {
            return Err(Refusal::Wrong("not the callee's parameters"));
        }
        self.uses(SystemUse {
            prints: function == SystemFunction::Print,
            allocates: matches!(function, SystemFunction::Allocate | SystemFunction::Free),
            launches: matches!(function, SystemFunction::Runtime(_)),
        });
        let arguments: Decoded<Vec<_>> = arguments.iter().map(|operand| self.argument(operand)).collect();
        let result = match results {
            [] | [Operand::Sink] => None,
            [result, ..] => Some(self.argument(result)?),
        };
        Ok(Op::System(Box::new(SystemCall { function, arguments: arguments?.into(), result })))
    }
}
