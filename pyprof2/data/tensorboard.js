// The tab in TensorBoard: which run, worker and span, and the page of that recording.
const STYLE = `
  html, body { height: 100%; margin: 0; font: 14px system-ui, sans-serif; }
  body { display: flex; flex-direction: column; }
  nav { display: flex; flex-wrap: wrap; gap: 12px; padding: 8px 12px; border-bottom: 1px solid #ccc; }
  label { display: flex; gap: 6px; align-items: center; }
  select { font: inherit; max-width: 40ch; }
  p { margin: 24px; max-width: 80ch; }
  iframe { flex: 1; border: 0; width: 100%; }
`;
const AXES = ["run", "worker", "span"];
const POLL_MS = 500;

const made = (name, text) => Object.assign(document.createElement(name), text ? { textContent: text } : {});
const asked = async (address) => {
  const answer = await fetch(address);
  if (!answer.ok) throw new Error(`TensorBoard answered ${answer.status}`);
  return answer.json();
};

export async function render() {
  const nav = made("nav"), place = made("main");
  place.style.cssText = "flex: 1; display: flex; flex-direction: column; min-height: 0";
  document.head.append(made("style", STYLE));
  document.body.append(nav, place);
  const tell = (text) => place.replaceChildren(made("p", text));

  let shown = 0;
  const open = async (key) => {
    const mine = ++shown;
    for (let waited = 0; ; waited += POLL_MS) {
      const state = await asked(`./state?key=${key}`);
      if (mine !== shown) return;
      if (state.error) return tell(`This recording cannot be shown: ${state.error}`);
      if (state.ready) break;
      if (!waited) tell("Reading the recording; a large one takes a minute.");
      await new Promise((go) => setTimeout(go, POLL_MS));
    }
    const frame = made("iframe");
    frame.src = `./page?key=${key}`;
    frame.title = "the page of the recording";
    place.replaceChildren(frame);
  };

  try {
    const all = await asked("./runs");
    if (!all.length) return tell("No recordings below the folder that TensorBoard shows.");
    const chosen = {};
    const draw = () => {
      nav.replaceChildren();
      let left = all;
      for (const axis of AXES) {
        const values = [...new Set(left.map((each) => each[axis]))];
        // The latest span is what was recorded last.
        if (!values.includes(chosen[axis])) chosen[axis] = axis === "span" ? values.at(-1) : values[0];
        const select = made("select");
        for (const value of values) {
          const option = made("option", value || "(only one)");
          option.value = value;
          select.append(option);
        }
        select.value = chosen[axis];
        select.name = axis;
        select.onchange = () => { chosen[axis] = select.value; draw(); };
        const label = made("label", axis);
        label.append(select);
        nav.append(label);
        left = left.filter((each) => each[axis] === chosen[axis]);
      }
      open(left[0].key).catch((error) => tell(String(error)));
    };
    draw();
  } catch (error) {
    tell(String(error));
  }
}
