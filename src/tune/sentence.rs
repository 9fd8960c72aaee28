//! Formats the confidence in an advice as a sentence.

use gpushim_simulate::tune::{Check, Confidence, Level, Parts};

/// Returns a sentence with the confidence and its reason.
pub(super) fn sentence(confidence: &Confidence, iterations: usize) -> String {
    let level = match confidence.level {
        Level::Sure => "Sure",
        Level::FairlySure => "Fairly sure",
        Level::Guess => "A guess",
    };
    let checks = &confidence.checks;
    if checks.is_empty() {
        let why = match confidence.parts {
            Parts::NoTime => {
                "there was no time to try it on parts that it was not chosen by".to_string()
            }
            _ if iterations > 0 => format!("there is one recording, of {iterations} iterations"),
            _ => "there is one recording, and no iterations were found in it".to_string(),
        };
        return format!("{level}: {why}.");
    }
    let worst = |figure: fn(&Check) -> f64| checks.iter().map(figure).fold(0.0, f64::max);
    let same = checks.iter().filter(|check| check.is_same()).count();
    let how = match confidence.parts {
        Parts::Recordings => format!(
            "chosen without one recording, the same is best for that one in {same} of {} cases, and holds at most {:.1} % \
             more than the best",
            checks.len(),
            worst(Check::regret)
        ),
        _ if same > 0 => {
            "chosen by the first half of the iterations, it is best in the second, too".to_string()
        }
        _ => {
            let names = checks
                .first()
                .map(|check| (check.chosen.as_str(), check.best.as_str()));
            let (chosen, best) = names.unwrap_or_default();
            format!(
                "the first half of the iterations would choose {chosen}, the second {best}, which holds {:.1} % less there",
                worst(Check::regret)
            )
        }
    };
    format!(
        "{level}: {how}; the peak differs by {:.1} % from the one predicted, where what the program asks for differs by {:.1} %.",
        worst(Check::difference),
        worst(Check::change)
    )
}
