/* A link in one direction, and the fates of its packets. */
#pragma once

#include <endian.h>

#include <deque>
#include <map>
#include <utility>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "common.h"

namespace
{

enum Fate : uint16_t
{
    DELIVERED = 0,
    QUEUE_DROP = 1,
    LOST = 2,
    INSIDE = 3,
};

/* A packet on a link. */
struct Row
{
    uint64_t arrivedNs;
    uint64_t departedNs = 0;
    uint64_t releasedNs = 0;
    uint64_t identity;
    uint32_t bytes;
    uint16_t pair;
    uint16_t fate = INSIDE;
    bool isMarked = false;
    uint32_t queuePackets;
};

/* A change of a link. */
struct Change
{
    Time at;
    std::string what;
    std::string value;
};

/* A link in one direction, with a qdisc, and the log of its packets. */
class Link
{
  public:
    uint32_t number;
    uint32_t from;
    uint32_t to;
    std::string rate;
    Time delay;
    double loss;
    std::string qdisc;
    std::vector<std::pair<std::string, std::string>> attributes;
    std::vector<Change> changes;

    void Install(const std::string& folder, Ptr<Node> fromNode, Ptr<Node> toNode)
    {
        m_log = CreateFile(folder + "/packets-" + std::to_string(number));
        // In addition to the qdisc, a device holds one packet and the one that it sends.
        NetDeviceContainer devices = Connect(fromNode, toNode, rate, delay, "1p");
        m_device = DynamicCast<PointToPointNetDevice>(devices.Get(0));
        m_far = DynamicCast<PointToPointNetDevice>(devices.Get(1));
        InstallQdisc();
        auto trace = [](Ptr<Object> of, const char* name, const CallbackBase& callback) {
            if (!of->TraceConnectWithoutContext(name, callback))
            {
                Refuse(std::string("no trace ") + name);
            }
        };
        trace(m_queue, "Enqueue", MakeCallback(&Link::OnEnqueue, this));
        trace(m_queue, "DropBeforeEnqueue", MakeCallback(&Link::OnRefused, this));
        trace(m_queue, "DropAfterDequeue", MakeCallback(&Link::OnDropped, this));
        trace(m_queue, "Mark", MakeCallback(&Link::OnMark, this));
        trace(m_queue, "PacketsInQueue", MakeCallback(&Link::OnLength, this));
        trace(m_device, "MacTx", MakeCallback(&Link::OnDevice, this));
        trace(m_device, "PhyTxBegin", MakeCallback(&Link::OnBegin, this));
        trace(m_device, "PhyTxEnd", MakeCallback(&Link::OnEnd, this));
        trace(m_far, "PhyRxEnd", MakeCallback(&Link::OnArrival, this));
        trace(m_far, "PhyRxDrop", MakeCallback(&Link::OnLoss, this));
        InstallChanges();
        Tell('q', number, 0);
    }

    Ptr<NetDevice> Device() const
    {
        return m_device;
    }

    /* Writes the drops and marks of the qdisc, and the packets still on the link. */
    void Finish()
    {
        for (char kind : {'n', 'm'})
        {
            for (const auto& [reason, count] : kind == 'n' ? m_drops : m_marks)
            {
                std::fprintf(g_events,
                             "%c %" PRIu32 " %" PRIu64 " %" PRIu64 " %s\n",
                             kind,
                             number,
                             NowNs(),
                             count,
                             reason.c_str());
            }
        }
        for (const Row& row : m_rows)
        {
            Write(row);
        }
        CloseFile(m_log);
    }

  private:
    void InstallQdisc()
    {
        ObjectFactory factory;
        factory.SetTypeId(qdisc);
        uint32_t quantum = 0;
        for (const auto& [name, value] : attributes)
        {
            if (name == "QUANTUM")
            {
                quantum = uint32_t(std::stoul(value));
                continue;
            }
            factory.Set(name, StringValue(value));
        }
        m_queue = factory.Create<QueueDisc>();
        if (quantum > 0)
        {
            DynamicCast<FqCoDelQueueDisc>(m_queue)->SetQuantum(quantum);
        }
        if (auto pie = DynamicCast<PieQueueDisc>(m_queue))
        {
            pie->AssignStreams(2000 + number);
        }
        if (auto red = DynamicCast<RedQueueDisc>(m_queue))
        {
            red->AssignStreams(2000 + number);
        }
        Ptr<TrafficControlLayer> control = m_device->GetNode()->GetObject<TrafficControlLayer>();
        control->SetRootQueueDiscOnDevice(m_device, m_queue);
    }

    void InstallChanges()
    {
        bool loses = loss > 0;
        for (const Change& change : changes)
        {
            loses |= change.what == "loss";
            Simulator::Schedule(change.at, &Link::Apply, this, change);
        }
        if (loses)
        {
            m_loss = CreateObject<RateErrorModel>();
            m_loss->SetUnit(RateErrorModel::ERROR_UNIT_PACKET);
            m_loss->SetRate(loss);
            m_loss->AssignStreams(1000 + number);
            m_far->SetReceiveErrorModel(m_loss);
        }
    }

    void Apply(Change change)
    {
        if (change.what == "rate")
        {
            m_device->SetDataRate(DataRate(change.value + "bps"));
        }
        else if (change.what == "delay")
        {
            delay = NanoSeconds(std::stoll(change.value));
            m_device->GetChannel()->SetAttribute("Delay", TimeValue(delay));
        }
        else
        {
            m_loss->SetRate(std::stod(change.value));
        }
    }

    /* The row of an arrived packet, before its fate is known. */
    Row& Begin(Ptr<const QueueDiscItem> item)
    {
        uint16_t pair = 0;
        auto ip = DynamicCast<const Ipv4QueueDiscItem>(item);
        if (ip)
        {
            auto found = g_pairs.find(ip->GetHeader().GetDestination().Get());
            pair = found == g_pairs.end() ? 0 : found->second;
        }
        Row row;
        row.arrivedNs = NowNs();
        row.identity = item->GetPacket()->GetUid();
        row.bytes = item->GetSize() + PPP_BYTES;
        row.pair = pair;
        row.queuePackets = m_queue->GetNPackets();
        m_rows.push_back(row);
        return m_rows.back();
    }

    Row& At(uint64_t place)
    {
        return m_rows.at(place - m_written);
    }

    /* The row of a packet in qdisc or device, which is one object there from its arrival on. */
    Row* Find(Ptr<const Packet> packet)
    {
        auto found = m_here.find(PeekPointer(packet));
        return found == m_here.end() ? nullptr : &At(found->second);
    }

    void OnEnqueue(Ptr<const QueueDiscItem> item)
    {
        Begin(item);
        m_here[PeekPointer(item->GetPacket())] = m_written + m_rows.size() - 1;
    }

    void OnRefused(Ptr<const QueueDiscItem> item, const char* reason)
    {
        ++m_drops[reason];
        m_isMarked.erase(PeekPointer(item->GetPacket()));
        Begin(item).fate = QUEUE_DROP;
        Flush();
    }

    void OnDropped(Ptr<const QueueDiscItem> item, const char* reason)
    {
        ++m_drops[reason];
        if (Row* row = Find(item->GetPacket()))
        {
            row->fate = QUEUE_DROP;
            m_here.erase(PeekPointer(item->GetPacket()));
        }
        m_isMarked.erase(PeekPointer(item->GetPacket()));
        Flush();
    }

    void OnMark(Ptr<const QueueDiscItem> item, const char* reason)
    {
        ++m_marks[reason];
        m_isMarked.insert(PeekPointer(item->GetPacket()));
    }

    void OnLength(uint32_t, uint32_t packets)
    {
        Tell('q', number, packets);
    }

    void OnDevice(Ptr<const Packet> packet)
    {
        if (Row* row = Find(packet))
        {
            Tell('o', number, NowNs() - row->arrivedNs);
            // A packet that did not wait was never in the queue.
            if (row->arrivedNs == NowNs() && row->queuePackets > 0)
            {
                --row->queuePackets;
            }
            row->isMarked = m_isMarked.erase(PeekPointer(packet)) > 0;
        }
    }

    void OnBegin(Ptr<const Packet>)
    {
        m_delayNs = uint64_t(delay.GetNanoSeconds());
    }

    void OnEnd(Ptr<const Packet> packet)
    {
        Tell('k', number);
        auto found = m_here.find(PeekPointer(packet));
        if (found != m_here.end())
        {
            Row& row = At(found->second);
            row.departedNs = NowNs();
            row.releasedNs = row.departedNs + m_delayNs;
            // The far end sees a copy, with the number of the packet and of those like it that were
            // sent again.
            m_flying[packet->GetUid()].push_back(found->second);
            m_here.erase(found);
        }
    }

    void OnArrival(Ptr<const Packet> packet)
    {
        Settle(packet, DELIVERED);
    }

    void OnLoss(Ptr<const Packet> packet)
    {
        Tell('l', number);
        Settle(packet, LOST);
    }

    void Settle(Ptr<const Packet> packet, Fate fate)
    {
        auto found = m_flying.find(packet->GetUid());
        if (found == m_flying.end())
        {
            return;
        }
        At(found->second.front()).fate = fate;
        found->second.pop_front();
        if (found->second.empty())
        {
            m_flying.erase(found);
        }
        Flush();
    }

    void Flush()
    {
        while (!m_rows.empty() && m_rows.front().fate != INSIDE)
        {
            Write(m_rows.front());
            m_rows.pop_front();
            ++m_written;
        }
    }

    void Write(const Row& row)
    {
        uint64_t isReleased = row.fate == DELIVERED;
        uint64_t fate = uint64_t(row.fate) << 48 | uint64_t(row.isMarked) << 63;
        uint64_t words[] = {row.arrivedNs,
                            row.departedNs,
                            row.releasedNs * isReleased,
                            row.identity,
                            row.bytes | uint64_t(row.pair) << 32 | fate,
                            row.queuePackets};
        for (uint64_t& word : words)
        {
            word = htole64(word);
        }
        std::fwrite(words, sizeof words, 1, m_log);
    }

    Ptr<PointToPointNetDevice> m_device;
    Ptr<PointToPointNetDevice> m_far;
    Ptr<QueueDisc> m_queue;
    Ptr<RateErrorModel> m_loss;
    FILE* m_log = nullptr;
    std::deque<Row> m_rows;
    uint64_t m_written = 0;
    uint64_t m_delayNs = 0;
    std::unordered_map<const Packet*, uint64_t> m_here;
    std::unordered_set<const Packet*> m_isMarked;
    std::unordered_map<uint64_t, std::deque<uint64_t>> m_flying;
    std::map<std::string, uint64_t> m_drops;
    std::map<std::string, uint64_t> m_marks;
};

} // namespace
