import { render } from 'preact';
import { Page } from './app.tsx';
import { removeToken } from './place.ts';

const token = removeToken();
const place = document.getElementById('page')!;
// Remove the placeholder in the HTML file.
place.replaceChildren();
render(<Page token={token} />, place);
