"use strict";
// Follows tasks that are not ended, and asks before something is deleted. Texts are set as texts, never as markup.
for (const form of document.querySelectorAll("form[data-confirm]"))
  form.addEventListener("submit", event => { if (!confirm(form.dataset.confirm)) event.preventDefault(); });

const ended = ["done", "failed", "cancelled"];

function lasted(seconds) {
  if (seconds < 100) return `${Math.round(seconds)} s`;
  return seconds < 6000 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

function show(place, task) {
  const texts = {
    state: task.state, percent: task.percent, message: task.message,
    left: task.seconds_left === null ? "" : `, about ${lasted(task.seconds_left)} left`,
  };
  for (const [name, text] of Object.entries(texts)) {
    const field = place.querySelector(`[data-field="${name}"]`);
    if (field) field.textContent = text;
  }
  const bar = place.querySelector("progress");
  if (bar) bar.value = task.percent;
}

async function follow(place) {
  try {
    const answer = await fetch(place.dataset.follow, { headers: { accept: "application/json" } });
    if (!answer.ok) return;
    const known = await answer.json();
    const tasks = Array.isArray(known) ? known : [known];
    for (const task of tasks) {
      const row = place.dataset.task ? place : place.querySelector(`[data-task="${task.id}"]`);
      if (row) show(row, task);
    }
    if (place.dataset.task && ended.includes(tasks[0].state)) {
      if (place.dataset.state !== tasks[0].state) location.reload();
      return;
    }
  } catch { /* the server is away: ask again */ }
  setTimeout(follow, 2000, place);
}

for (const place of document.querySelectorAll("[data-follow]"))
  if (!ended.includes(place.dataset.state)) follow(place);
