//! DWARF expressions, as far as they occur in unwind tables. They occur in the lazy-binding stubs
//! of the PLT, and in functions that realign their stack.
//!
//! They are evaluated once for an address, before there is a frame. The instruction pointer is
//! known, and the stack and frame pointers stay unknowns.

use gimli::{Encoding, EndianSlice, Expression, NativeEndian, Operation, Register, X86_64};

/// Value that an expression has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number without registers.
    Constant(u64),
    /// A register plus a constant.
    Sum(Register, i64),
    /// The word at a register plus a constant.
    Word(Register, i64),
}

use Value::{Constant, Sum, Word};

/// Most values on the stack: the longest expression known needs four.
const DEEPEST: usize = 8;

struct Stack {
    values: [Value; DEEPEST],
    len: usize,
}

impl Stack {
    fn push(&mut self, value: Value) -> Option<()> {
        *self.values.get_mut(self.len)? = value;
        self.len += 1;
        Some(())
    }

    fn pop(&mut self) -> Option<Value> {
        self.len = self.len.checked_sub(1)?;
        self.values.get(self.len).copied()
    }
}

/// Evaluates an expression for a frame at `pc`; `None` if it has any other operation.
pub fn evaluate(
    expression: Expression<EndianSlice<'_, NativeEndian>>,
    encoding: Encoding,
    pc: u64,
) -> Option<Value> {
    let mut stack = Stack {
        values: [Constant(0); DEEPEST],
        len: 0,
    };
    let mut operations = expression.operations(encoding);
    while let Some(operation) = operations.next().ok()? {
        let value = match operation {
            Operation::RegisterOffset {
                register: X86_64::RA,
                offset,
                ..
            } => Constant(pc.wrapping_add_signed(offset)),
            Operation::RegisterOffset {
                register, offset, ..
            } => Sum(register, offset),
            Operation::UnsignedConstant { value } => Constant(value),
            Operation::SignedConstant { value } => Constant(value as u64),
            Operation::PlusConstant { value } => plus(stack.pop()?, Constant(value))?,
            Operation::Plus => plus(stack.pop()?, stack.pop()?)?,
            Operation::And => numbers(&mut stack, |a, b| a & b)?,
            Operation::Shl => numbers(&mut stack, |a, b| a.checked_shl(b as u32).unwrap_or(0))?,
            Operation::Ge => numbers(&mut stack, |a, b| (a as i64 >= b as i64).into())?,
            Operation::Deref {
                size: 8,
                space: false,
                ..
            } => match stack.pop()? {
                Sum(register, offset) => Word(register, offset),
                Constant(_) | Word(..) => return None,
            },
            _ => return None,
        };
        stack.push(value)?;
    }
    stack.pop()
}

fn plus(a: Value, b: Value) -> Option<Value> {
    match (a, b) {
        (Constant(a), Constant(b)) => Some(Constant(a.wrapping_add(b))),
        (Sum(register, offset), Constant(by)) | (Constant(by), Sum(register, offset)) => {
            Some(Sum(register, offset.wrapping_add(by as i64)))
        }
        _ => None,
    }
}

/// Applies an operation to the two topmost values, if both are numbers; the topmost is its second
/// operand.
fn numbers(stack: &mut Stack, operation: fn(u64, u64) -> u64) -> Option<Value> {
    match (stack.pop()?, stack.pop()?) {
        (Constant(b), Constant(a)) => Some(Constant(operation(a, b))),
        _ => None,
    }
}
