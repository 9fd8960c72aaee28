//! Rules from an object's unwind tables: `.eh_frame`, by way of the search table in
//! `.eh_frame_hdr`.

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EhFrameOffset, EndianSlice, FrameDescriptionEntry,
    NativeEndian, Register, RegisterRule, UnwindContext, UnwindContextStorage, UnwindSection,
    UnwindTableRow, X86_64,
};

use super::expression::{Value, evaluate};
use super::object::Object;
use super::rule::{Cfa, Rule, SavedBp};

type Bytes<'a> = EndianSlice<'a, NativeEndian>;

/// Room on the stack for gimli to work in, about 3 KiB. Compilers save the six registers that a
/// callee must keep, and remember one state. Hand-written tables use a few more.
struct Inline;

impl UnwindContextStorage<usize> for Inline {
    type Rules = [(Register, RegisterRule<usize>); 20];
    type Stack = [UnwindTableRow<usize, Inline>; 4];
}

/// Tables that cover one address.
struct Tables<'a> {
    frames: EhFrame<Bytes<'a>>,
    bases: BaseAddresses,
    entry: FrameDescriptionEntry<Bytes<'a>>,
}

/// Makes the rule for a frame at `pc`, by the tables for the address `inside` its instruction.
/// `None` if they do not cover it.
pub fn rule(object: &Object, inside: u64, pc: u64) -> Option<Rule> {
    let tables = tables(object, inside)?;
    if tables.entry.is_signal_trampoline() {
        return Some(signal(object, pc));
    }
    Some(from_row(&tables, inside, pc).unwrap_or(Rule::END))
}

fn tables(object: &Object, address: u64) -> Option<Tables<'_>> {
    let at = object.address_of(object.segment(libc::PT_GNU_EH_FRAME)?);
    let bases = BaseAddresses::default().set_eh_frame_hdr(at);
    let header = EhFrameHdr::new(object.bytes(at)?, NativeEndian)
        .parse(&bases, 8)
        .ok()?;
    let at = header.eh_frame_ptr().direct().ok()?;
    let bases = bases.set_eh_frame(at);
    let frames = EhFrame::new(object.bytes(at)?, NativeEndian);
    let entry = header
        .table()?
        .lookup(address, &bases)
        .ok()?
        .direct()
        .ok()?;
    let offset = EhFrameOffset(usize::try_from(entry.checked_sub(at)?).ok()?);
    let entry = frames
        .fde_from_offset(&bases, offset, EhFrame::cie_from_offset)
        .ok()?;
    entry.contains(address).then_some(Tables {
        frames,
        bases,
        entry,
    })
}

/// Addresses of the function, or part of one, that an address is in by the tables.
pub fn extent(object: &Object, address: u64) -> Option<std::ops::Range<u64>> {
    let entry = tables(object, address)?.entry;
    let begin = entry.initial_address();
    Some(begin..begin.checked_add(entry.len())?)
}

/// Makes the rule for the code that signal handlers return to: `mov rax, SYS_rt_sigreturn;
/// syscall`.
fn signal(object: &Object, pc: u64) -> Rule {
    const RETURN: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
    match object.bytes(pc) {
        Some(code) if code.starts_with(&RETURN) => Rule::SIGNAL,
        _ => Rule::END,
    }
}

/// Makes the rule of a table row. `None` if it has a form that compilers do not write.
fn from_row(tables: &Tables<'_>, inside: u64, pc: u64) -> Option<Rule> {
    let encoding = tables.entry.cie().encoding();
    let mut context = UnwindContext::<usize, Inline>::new_in();
    let row = tables
        .entry
        .unwind_info_for_address(&tables.frames, &tables.bases, &mut context, inside)
        .ok()?;
    if row.register(X86_64::RA) == Some(RegisterRule::Undefined) {
        return Some(Rule::OUTERMOST);
    }
    let value = |expression: gimli::UnwindExpression<usize>| {
        evaluate(expression.get(&tables.frames).ok()?, encoding, pc)
    };

    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => Value::Sum(*register, *offset),
        CfaRule::Expression(expression) => value(*expression)?,
    };
    let cfa = match cfa {
        Value::Sum(X86_64::RSP, offset) => Cfa::Sp(offset),
        Value::Sum(X86_64::RBP, offset) => Cfa::Bp(offset),
        Value::Word(X86_64::RBP, offset) => Cfa::AtBp(offset),
        _ => return None,
    };
    let bp = match row.register(X86_64::RBP) {
        None | Some(RegisterRule::SameValue) => SavedBp::Same,
        Some(RegisterRule::Offset(offset)) => SavedBp::AtCfa(offset),
        Some(RegisterRule::Expression(expression)) => match value(expression)? {
            Value::Sum(X86_64::RBP, offset) => SavedBp::AtBp(offset),
            _ => return None,
        },
        Some(_) => return None,
    };
    let sp_is_cfa = matches!(
        row.register(X86_64::RSP),
        None | Some(RegisterRule::SameValue | RegisterRule::ValOffset(0))
    );
    let returns_below_cfa = row.register(X86_64::RA) == Some(RegisterRule::Offset(-8));
    (sp_is_cfa && returns_below_cfa).then(|| Rule::caller(cfa, bp))
}
