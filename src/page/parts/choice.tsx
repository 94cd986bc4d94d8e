interface ChoiceProps<Option extends string> {
  label: string;
  options: readonly Option[];
  chosen: Option;
  choose(option: Option): void;
}

/** A group of buttons for choosing one of a few options. */
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

/** A drop-down list. */
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
