/** How a screen names a series that the platform refuses. */
export interface ShownSeries {
  asset: number;
  key?: string | undefined;
  group?: string | undefined;
  /** Its number, or its code. */
  unit?: string | undefined;
  tag?: string | undefined;
}

/** `FT-101 flow (asset 881, unit 12)` */
export function seriesText({ asset, key, group, unit, tag }: ShownSeries): string {
  const name = [tag, key].filter((part) => part !== undefined).join(' ');
  const facts = [`asset ${asset}`, group && `group ${group}`, unit && `unit ${unit}`].filter(Boolean);
  return name === '' ? facts.join(', ') : `${name} (${facts.join(', ')})`;
}

/** The options with which the buffer's verbs choose it. */
export function choiceText({ asset, key, tag }: ShownSeries): string {
  const whose = tag === undefined ? `--asset ${asset}` : `--tag ${tag}`;
  return key === undefined ? whose : `${whose} --key ${key}`;
}
