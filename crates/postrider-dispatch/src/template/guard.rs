//! Checks what a template contains. It may choose, repeat and place texts. It may not call, capture,
//! include or multiply, because these make much out of little: a string that is doubled forty times
//! needs a terabyte and takes few steps.

use minijinja::machinery::ast::{
    BinOpKind, CallArg, CompareOpKind, Expr, ForLoop, IfCond, IfExpr, Slice, Spanned, Stmt,
};
use minijinja::machinery::{Span, Token, parse, tokenize};
use minijinja::syntax::SyntaxConfig;

use super::engine::{FILTERS, TESTS};

/// What is wrong with a text, and in which line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TemplateFlaw {
    pub(super) line: usize,
    pub(super) found: String,
    pub(super) allowed: String,
}

impl TemplateFlaw {
    fn at(span: Span, found: impl Into<String>, allowed: impl Into<String>) -> Self {
        Self { line: span.start_line.into(), found: found.into(), allowed: allowed.into() }
    }

    /// Of an error of the engine.
    pub(super) fn of(error: &minijinja::Error) -> Self {
        Self {
            line: error.line().unwrap_or(1),
            found: error.detail().map_or_else(|| error.to_string(), str::to_owned),
            allowed: "a Jinja template; `{{ \"{{\" }}` writes two braces".to_owned(),
        }
    }
}

type GuardResult = Result<(), TemplateFlaw>;

const STATEMENTS: &str = "if, for, set NAME = …, raw, and {{ … }}";

/// Tokens between one pair of braces. The syntax tree is as deep as a chain of them is long, and each
/// level takes stack.
const TOKENS_MAX: usize = 400;
/// The syntax tree nests each in the one before it.
const ELIFS_MAX: usize = 100;

/// What a text may cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct TextTraits {
    pub(super) has_loop: bool,
    /// It has operations that read a whole text at each step: `in`, slices, items.
    pub(super) scans: bool,
    /// The bytes of the longest text in its expressions.
    pub(super) longest_constant: usize,
}

/// Constants of one list. Nothing counts how often they are compared.
const CONSTANTS_MAX: usize = 100;

/// Whether a text is a template that contains only what is allowed.
pub(super) fn check(source: &str, syntax: &SyntaxConfig) -> Result<TextTraits, TemplateFlaw> {
    check_length(source, syntax)?;
    let root = parse(source, "text", syntax.clone()).map_err(|error| TemplateFlaw::of(&error))?;
    let mut guard = TextGuard::default();
    guard.statement(&root)?;
    Ok(guard.traits)
}

#[derive(Default)]
struct TextGuard {
    traits: TextTraits,
}

/// Refuses what is too long to be parsed. The parser reports what has no tokens.
fn check_length(source: &str, syntax: &SyntaxConfig) -> GuardResult {
    let (mut tokens, mut elifs) = (0, 0);
    for (token, span) in tokenize(source, false, syntax.clone()).map_while(Result::ok) {
        match token {
            Token::VariableStart | Token::BlockStart => tokens = 0,
            Token::Ident("elif") => elifs += 1,
            _ => {}
        }
        tokens += 1;
        if tokens > TOKENS_MAX {
            let allowed = format!("at most {TOKENS_MAX} words and signs between two braces");
            return Err(TemplateFlaw::at(span, "an endless expression", allowed));
        }
        if elifs > ELIFS_MAX {
            let allowed = format!("at most {ELIFS_MAX} in one text");
            return Err(TemplateFlaw::at(span, "too many elif", allowed));
        }
    }
    Ok(())
}

impl TextGuard {
    fn statements(&mut self, all: &[Stmt<'_>]) -> GuardResult {
        all.iter().try_for_each(|one| self.statement(one))
    }

    fn statement(&mut self, stmt: &Stmt<'_>) -> GuardResult {
        let refuse = |span: Span, name: &str| Err(TemplateFlaw::at(span, name, STATEMENTS));
        match stmt {
            Stmt::Template(template) => self.statements(&template.children),
            Stmt::EmitExpr(emit) => self.expression(&emit.expr),
            Stmt::EmitRaw(_) => Ok(()),
            Stmt::ForLoop(each) => self.for_loop(each),
            Stmt::IfCond(cond) => self.if_cond(cond),
            Stmt::Set(set) => self.expression(&set.expr),
            Stmt::WithBlock(at) => refuse(at.span(), "with"),
            Stmt::SetBlock(at) => refuse(at.span(), "set without ="),
            Stmt::AutoEscape(at) => refuse(at.span(), "autoescape"),
            Stmt::FilterBlock(at) => refuse(at.span(), "filter as a block"),
            Stmt::Do(at) => refuse(at.span(), "do"),
            #[expect(
                unreachable_patterns,
                reason = "features of the engine that another crate may enable"
            )]
            _ => refuse(Span::default(), "another statement"),
        }
    }

    fn for_loop(&mut self, each: &Spanned<ForLoop<'_>>) -> GuardResult {
        if each.recursive {
            return Err(TemplateFlaw::at(each.span(), "for … recursive", STATEMENTS));
        }
        self.traits.has_loop = true;
        self.expression(&each.iter)?;
        each.filter_expr.iter().try_for_each(|one| self.expression(one))?;
        self.statements(&each.body)?;
        self.statements(&each.else_body)
    }

    fn if_cond(&mut self, cond: &IfCond<'_>) -> GuardResult {
        self.expression(&cond.expr)?;
        self.statements(&cond.true_body)?;
        self.statements(&cond.false_body)
    }

    fn expression(&mut self, expr: &Expr<'_>) -> GuardResult {
        match expr {
            Expr::Var(_) => Ok(()),
            Expr::Const(constant) => {
                let bytes = constant.value.as_str().map_or(0, str::len);
                self.traits.longest_constant = self.traits.longest_constant.max(bytes);
                Ok(())
            }
            Expr::Slice(slice) => self.sliced(slice),
            Expr::UnaryOp(op) => self.expression(&op.expr),
            Expr::BinOp(op) => {
                operator(op.span(), op.op, [&op.left, &op.right])?;
                self.traits.scans |= matches!(op.op, BinOpKind::In);
                self.expression(&op.left)?;
                self.expression(&op.right)
            }
            Expr::Compare(compare) => {
                self.expression(&compare.expr)?;
                compare.ops.iter().try_for_each(|op| {
                    let scans = matches!(op.op, CompareOpKind::In | CompareOpKind::NotIn);
                    self.traits.scans |= scans;
                    self.expression(&op.expr)
                })
            }
            Expr::IfExpr(choice) => self.chosen(choice),
            Expr::Filter(filter) => {
                known(filter.span(), "filter", filter.name, &FILTERS)?;
                filter.expr.iter().try_for_each(|one| self.expression(one))?;
                self.arguments(&filter.args)
            }
            Expr::Test(test) => {
                known(test.span(), "test", test.name, &TESTS)?;
                self.traits.scans |= matches!(test.name, "in" | "lower" | "upper");
                self.expression(&test.expr)?;
                self.arguments(&test.args)
            }
            Expr::GetAttr(get) => self.expression(&get.expr),
            Expr::GetItem(get) => {
                self.traits.scans = true;
                self.expression(&get.expr)?;
                self.expression(&get.subscript_expr)
            }
            Expr::Call(call) => {
                let allowed = "variables and filters: there are no functions";
                Err(TemplateFlaw::at(call.span(), "a call", allowed))
            }
            Expr::List(list) => self.constants(list.span(), &list.items),
            Expr::Tuple(tuple) => self.constants(tuple.span(), &tuple.items),
            Expr::Map(map) => {
                self.constants(map.span(), &map.keys)?;
                self.constants(map.span(), &map.values)
            }
        }
    }

    /// The engine panics when it goes backwards through an empty list.
    fn sliced(&mut self, slice: &Slice<'_>) -> GuardResult {
        if let Some(step) = &slice.step {
            let allowed = "[from:to]; | reverse goes backwards";
            return Err(TemplateFlaw::at(step.span(), "a slice with a step", allowed));
        }
        self.traits.scans = true;
        self.expression(&slice.expr)?;
        [&slice.start, &slice.stop].into_iter().flatten().try_for_each(|one| self.expression(one))
    }

    fn chosen(&mut self, choice: &IfExpr<'_>) -> GuardResult {
        self.expression(&choice.test_expr)?;
        self.expression(&choice.true_expr)?;
        choice.false_expr.iter().try_for_each(|one| self.expression(one))
    }

    fn arguments(&mut self, args: &[CallArg<'_>]) -> GuardResult {
        args.iter().try_for_each(|arg| match arg {
            CallArg::Pos(expr) | CallArg::Kwarg(_, expr) => self.expression(expr),
            CallArg::PosSplat(expr) | CallArg::KwargSplat(expr) => {
                Err(TemplateFlaw::at(expr.span(), "* before an argument", "arguments one by one"))
            }
        })
    }

    /// Allows only constants: lists of the same list are small to write and huge to print.
    fn constants(&mut self, span: Span, items: &[Expr<'_>]) -> GuardResult {
        if items.len() > CONSTANTS_MAX {
            let allowed = format!("at most {CONSTANTS_MAX} constants; a longer list is a variable");
            return Err(TemplateFlaw::at(span, format!("a list of {}", items.len()), allowed));
        }
        items.iter().try_for_each(|item| self.expression(item))?;
        let constant = |expr: &Expr<'_>| match expr {
            Expr::Const(_) => true,
            Expr::UnaryOp(op) => matches!(op.expr, Expr::Const(_)),
            _ => false,
        };
        if items.iter().all(constant) {
            return Ok(());
        }
        Err(TemplateFlaw::at(
            span,
            "a list with something else than constants",
            "[\"a\", \"b\"] or a variable",
        ))
    }
}

/// Allows only operators that cannot make a text longer.
fn operator(span: Span, op: BinOpKind, sides: [&Expr<'_>; 2]) -> GuardResult {
    let number = |expr: &Expr<'_>| matches!(expr, Expr::Const(c) if c.value.is_number());
    let name = match op {
        BinOpKind::Concat => "~",
        BinOpKind::Add if sides.into_iter().any(number) => return Ok(()),
        BinOpKind::Add => "+",
        BinOpKind::Mul => "*",
        BinOpKind::Pow => "**",
        _ => return Ok(()),
    };
    let allowed = "texts side by side, {{ a }}{{ b }}; + with a number on one side; sums and products \
                   are for the caller to make";
    Err(TemplateFlaw::at(span, name, allowed))
}

fn known(span: Span, what: &str, name: &str, names: &[&str]) -> GuardResult {
    if names.contains(&name) {
        return Ok(());
    }
    let name: String = name.chars().take(64).collect();
    Err(TemplateFlaw::at(
        span,
        format!("the {what} {name}"),
        format!("one of {}", names.join(", ")),
    ))
}
