interface ChoiceProps<Option extends string> {
  label: string;
  options: readonly Option[];
  chosen: Option;
  choose(option: Option): void;
}

/** One of a few, all of them seen at once. */
export function Choice<Option extends string>({ label, options, chosen, choose }: ChoiceProps<Option>) {
  return (
    <fieldset class="choice">
      <legend class="unseen">{label}</legend>
      {options.map((option) => (
        <button key={option} type="button" aria-pressed={option === chosen} onClick={() => choose(option)}>
          {option}
        </button>
      ))}
    </fieldset>
  );
}

/** One of several, in a list that opens. */
export function Select<Option extends string>({ label, options, chosen, choose }: ChoiceProps<Option>) {
  return (
    <label>
      {label}{' '}
      <select value={chosen} onChange={(event) => choose(event.currentTarget.value as Option)}>
        {options.map((option) => (
          <option key={option} value={option}>
            {option}
          </option>
        ))}
      </select>
    </label>
  );
}
