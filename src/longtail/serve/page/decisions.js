// Which labels are predicted at a strictness, and how numbers are written.

const logit = (p) => Math.log(p) - Math.log1p(-p);
const sigmoid = (x) => 1 / (1 + Math.exp(-x));

/** The threshold shifted by the strictness, on the scale that is shown; null: never predicted. */
export function shiftedThreshold({ threshold, probability }, strictness) {
  if (threshold === null) return null;
  if (strictness === 0) return threshold;
  return probability === null ? threshold + strictness : sigmoid(logit(threshold) + strictness);
}

/** At 0 the model's decision, with its limits of labels per text; stricter removes, looser adds. */
export function isPredicted(label, strictness) {
  if (strictness === 0 || label.threshold === null) return label.predicted;
  const above =
    label.probability === null
      ? label.score >= label.threshold + strictness
      : logit(label.probability) >= logit(label.threshold) + strictness;
  return strictness > 0 ? label.predicted && above : label.predicted || above;
}

/** The range of the bars: 0 to 1 for probabilities, that of the values for scores. */
export function barRange(labels) {
  if (labels.every((label) => label.probability !== null)) return [0, 1];
  const values = labels.flatMap(({ score, threshold }) =>
    threshold === null ? [score] : [score, threshold],
  );
  return [Math.min(-1, ...values), Math.max(1, ...values)];
}

export function percent(p) {
  if (p > 0 && p < 0.001) return "< 0.1 %";
  if (p > 0.999 && p < 1) return "> 99.9 %";
  return `${(100 * p).toFixed(1)} %`;
}

export const signed = (x) => (x < 0 ? "−" : "+") + Math.abs(x).toFixed(2);

/** A value as text: a percentage for probabilities, a number for scores. */
export const onScale = (label, value) =>
  label.probability === null ? value.toFixed(2).replace("-", "−") : percent(value);

export function thresholdText(label, strictness) {
  const threshold = shiftedThreshold(label, strictness);
  return threshold === null ? "never predicted" : `threshold ${onScale(label, threshold)}`;
}

export const valueOf = (label) => (label.probability === null ? label.score : label.probability);
