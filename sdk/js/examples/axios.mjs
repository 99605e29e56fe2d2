// Tells the warehouse of an order with axios. While the warehouse is down, Postrider makes the request again.

import axios from "axios";
import { Postrider } from "postrider";
import { handOverFailures } from "postrider/axios";

const warehouse = axios.create({ baseURL: process.env.WAREHOUSE });
handOverFailures(warehouse, { postrider: new Postrider() }); // POSTRIDER_SERVER and POSTRIDER_KEY

const { status, data } = await warehouse.post("", { order: 91 });
console.log(status, status === 202 ? data.id : "stored");
