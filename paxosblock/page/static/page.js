// Fetches the page again and puts the new <main> in the place of the old one. Without this script the page is complete.
"use strict";
(() => {
  const every = Number(document.querySelector("main").dataset.live);
  if (!every) return;
  const pause = document.createElement("button"), note = document.getElementById("refresh");
  let paused = false;
  const told = (text) => { note.firstChild.textContent = text; };
  pause.type = "button";
  pause.textContent = "Pause";
  pause.onclick = () => {
    paused = !paused;
    pause.textContent = paused ? "Go on" : "Pause";
    told(paused ? "Paused. " : "");
  };
  note.append("", pause);
  const busy = () => paused || document.hidden || String(getSelection()) || document.querySelector("main").contains(document.activeElement);
  setInterval(async () => {
    if (busy()) return;
    try {
      const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(5000) });
      if (!answer.ok) throw new Error(answer.status);
      const next = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
      if (busy()) return;
      document.querySelector("main").replaceChildren(...next.childNodes);
      told("");
    } catch (error) {
      told(`No answer since ${new Date().toLocaleTimeString()}: what you see is old. `);
    }
  }, every);
})();
