// What to run: the controls, made of what the program says can be set. Nothing is judged here: the program does, with the words of
// its command line. Shared with live.js: form.show, form.running.
"use strict";

const form = (() => {
  const data = JSON.parse(document.getElementById("form-data").textContent);
  const at = (id) => document.getElementById(id);
  const kinds = new Map(data.kinds.map((kind) => [kind.name, kind]));
  const drills = data.kinds.filter((kind) => kind.strategy);
  const scenarios = data.kinds.filter((kind) => !kind.strategy);

  // The choice of the moment. What was typed is kept for each drill apart, as each has settings of its own.
  let scenario = scenarios[0].name, drill = "", chosen = ["broken", "fixed"];
  const typed = new Map();
  const kind = () => kinds.get(drill || scenario);
  const edits = () => {
    if (!typed.has(drill)) typed.set(drill, {});
    return typed.get(drill);
  };

  function choice() {
    const settings = Object.fromEntries(kind().fields.map(({ name, value }) => [name, edits()[name] ?? value]));
    return { kind: kind().name, strategies: drill ? [] : data.strategies.map(({ name }) => name).filter((name) => chosen.includes(name)), settings };
  }

  const option = (group, type, name, text, about, color) => {
    const input = html("input", { type, name: group, value: name });
    const label = html("label", { class: "option mode", title: about }, input, html("span", {}, text));
    if (color) label.style.setProperty("--mode", color);
    return label;
  };
  at("strategies").append(...data.strategies.map(({ name, short, color }) => option("strategy", "checkbox", name, name, short, color)));
  at("kinds").append(...scenarios.map(({ name, short }) => option("kind", "radio", name, name, short)));
  at("drill").append(html("option", { value: "" }, "none"), ...drills.map(({ name }) => html("option", { value: name }, name)));

  // field is one setting; the program's words say which values it takes.
  function field({ name, usage, value, want, boolean: isSwitch }) {
    const id = "set-" + name, now = edits()[name] ?? value;
    const input = html("input", isSwitch ? { id, type: "checkbox" } : { id, type: "text", spellcheck: "false" });
    if (isSwitch) input.checked = now === "true"; else input.value = now;
    input.dataset.setting = name;
    input.setAttribute("aria-describedby", `hint-${name} fault-${name}`);
    input.addEventListener("input", () => {
      edits()[name] = isSwitch ? String(input.checked) : input.value;
      check();
    });
    return html("div", { class: "field" }, html("label", { for: id }, name), input,
      html("p", { class: "hint", id: "hint-" + name }, usage.replace(/ \(default:.*\)$/, ""), html("span", { class: "want" }, want)),
      html("p", { class: "fault", id: "fault-" + name }));
  }

  // show puts the choice into the controls.
  function show() {
    const strategies = drill ? [kind().strategy] : chosen;
    for (const input of at("strategies").querySelectorAll("input")) {
      input.checked = strategies.includes(input.value);
      input.disabled = drill !== "";
    }
    for (const input of at("kinds").querySelectorAll("input")) {
      input.checked = drill === "" && input.value === scenario; // a drill has its own
      input.disabled = drill !== "";
    }
    at("drill").value = drill;
    at("kind-note").textContent = kind().short;
    at("often").replaceChildren(...kind().fields.filter((one) => !one.seldom).map(field));
    at("seldom").replaceChildren(...kind().fields.filter((one) => one.seldom).map(field));
    check();
  }

  at("strategies").addEventListener("change", () => {
    chosen = [...at("strategies").querySelectorAll("input:checked")].map((input) => input.value);
    check();
  });
  at("kinds").addEventListener("change", (event) => {
    scenario = event.target.value;
    show();
  });
  at("drill").addEventListener("change", () => {
    drill = at("drill").value;
    show();
  });

  const post = (path, body) => fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

  // tell shows what the program says of the choice, each fault at its setting.
  function tell({ command, warnings, faults }) {
    for (const place of document.querySelectorAll(".controls .fault")) place.textContent = "";
    for (const input of document.querySelectorAll(".controls [aria-invalid]")) input.removeAttribute("aria-invalid");
    for (const { field, text } of faults ?? []) {
      const place = at("fault-" + field) ?? at("problem");
      place.textContent = place.textContent ? `${place.textContent}; ${text}` : text;
      at("set-" + field)?.setAttribute("aria-invalid", "true");
    }
    at("warnings").replaceChildren(...(warnings ?? []).map((text) => html("li", {}, text)));
    // A flag stays in one piece.
    if (command) at("command").replaceChildren(...command.split(" ").flatMap((word, i) => [i > 0 ? " " : "", html("span", {}, word)]));
  }

  // check asks what the choice comes to, when nothing was typed for a moment. Only the newest answer counts.
  let timer, asked = 0;
  function check() {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      const number = ++asked;
      try {
        const response = await post("check", choice());
        const said = await response.json();
        if (number === asked) tell(said);
      } catch { /* the feed says that the program is gone */ }
    }, 150);
  }

  at("form").addEventListener("submit", async (event) => {
    event.preventDefault();
    if (at("start").disabled) return;
    asked++; // an earlier answer is out of date
    try {
      const response = await post("start", choice());
      tell(await response.json());
      at("form").querySelector("[aria-invalid]")?.focus();
      // In one column the pictures are below.
      if (response.ok && matchMedia("(max-width: 799px)").matches) document.querySelector("main").scrollIntoView();
    } catch {
      at("problem").textContent = "The program does not answer: nothing was started.";
    }
  });
  at("stop").addEventListener("click", () => post("stop", {}).catch(() => {}));
  at("copy").addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(at("command").textContent);
      at("copy").textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(at("command"));
      at("copy").textContent = "Selected: copy it with the keyboard";
    }
    setTimeout(() => { at("copy").textContent = "Copy"; }, 2000);
  });

  show();
  return {
    data,
    // use takes over what somebody has chosen, as it is shown to all.
    use({ kind: name, strategies, settings }) {
      if (!kinds.has(name)) return;
      drill = kinds.get(name).strategy ? name : "";
      if (!drill) [scenario, chosen] = [name, strategies];
      Object.assign(edits(), settings);
      show();
    },
    // running says whether a run goes on, and whether it is being stopped.
    running(goes, stops) {
      const focused = document.activeElement;
      at("choice").disabled = goes;
      at("start").disabled = goes;
      at("stop").disabled = !goes || stops;
      // Who has just pressed the one goes on with the other.
      if (goes && focused === at("start")) at("stop").focus();
      if (!goes && focused === at("stop")) at("start").focus();
    },
  };
})();
